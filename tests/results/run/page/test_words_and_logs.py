"""Texts, numbers and logs of a page, compared with independent computations."""

import base64
import hashlib
import html
import json
import re
import shlex
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Case
from harness.ops import CheckResult, History, Op, OpType, Verdict
from harness.registry import load_plugin
from harness.store import load_run, shrunk_name
from harness.support.html_template import script_safe
from results.run.page import PageReporter, build, head, read_results, render
from results.run.page import logs as logs_module
from results.run.page.logs import read_logs
from results.run.page.summary import SENTENCES_MAX, Results, by_kind, certificate_of, focus_of
from tests.results.run.page.runs import MS, S, small_run, stale_read, write_run

ROOT = Path(__file__).parents[4]
WALL = 1_795_000_000 * S


def data_of(text):
    """Return the data that a page contains, read as a browser reads it."""
    kind, content = re.search(
        r'<script type="application/json" id="data" data-kind="([a-z-]+)">(.*?)</script>',
        text,
        re.DOTALL,
    ).groups()
    if kind == "deflate-raw":
        return json.loads(zlib.decompress(base64.b64decode(content), -15))
    return json.loads(content)


@pytest.fixture
def folder(tmp_path):
    history = small_run()
    return write_run(tmp_path, history, [stale_read(history)])


# --- numbers ---------------------------------------------------------------------------------


def smallest_that_covers(values, share):
    """Return a quantile by the definition of the nearest rank, without the use of ranks."""
    return min(v for v in values if sum(w <= v for w in values) >= share * len(values) - 1e-9)


@given(st.lists(st.tuples(st.sampled_from(["ok", "fail", "info"]), st.integers(0, 10**9))))
def test_counts_and_quantiles_by_kind(found):
    ops = []
    for n, (kind, took) in enumerate(found):
        ops.append(Op(2 * n, 5, n, OpType.INVOKE, "get"))
        ops.append(Op(2 * n + 1, 5 + took, n, OpType(kind), "get"))
    rows = by_kind(History(ops))
    if not found:
        assert rows == []
        return
    (row,) = rows
    for kind in ("ok", "fail", "info"):
        assert sum(one == kind for one, _ in found) == row[kind]
    took = [ns for kind, ns in found if kind == "ok"]
    shares = (0.5, 0.9, 0.99, 1.0) if took else ()
    assert [round(smallest_that_covers(took, share) / 1e6, 3) for share in shares] == row["ms"]


def test_operations_that_never_completed_count_as_info():
    rows = {row["f"]: row for row in by_kind(small_run())}
    assert rows["list"] == {"f": "list", "ok": 1, "fail": 0, "info": 1, "ms": [5.0, 5.0, 5.0, 5.0]}
    assert rows["alter"] == {"f": "alter", "ok": 0, "fail": 0, "info": 1, "ms": []}


# --- words -----------------------------------------------------------------------------------


def result(verdict, operations=(), **details):
    return CheckResult(verdict, Verdict(verdict), "r", (), tuple(operations), details)


def test_the_first_invalid_checker_that_names_operations_is_looked_at():
    valid, invalid = result("valid", [1]), result("invalid", [5, 3])
    assert focus_of(Results(checkers=(valid,))) == ()
    assert focus_of(Results(checkers=(valid, result("invalid"), invalid))) == (5, 3)
    assert focus_of(Results(checkers=(result("unknown", [9]), invalid))) == (5, 3)
    assert focus_of(Results(checkers=(valid, result("unknown", [9])))) == (9,)


def test_the_certificate_in_words():
    certificate = {"ok_by_kind": {"get": 3}, "faults": ["a", "b"], "leaders": "m1@1", "none": []}
    rows = certificate_of(Results(checkers=(result("valid", certificate=certificate),)))
    assert rows == [
        ("ok by kind", ["get: 3"]),
        ("faults", ["a", "b"]),
        ("leaders", ["m1@1"]),
        ("none", ["none"]),
    ]


def test_contents_of_the_page_of_a_run(folder):
    data = build(load_run(folder), read_results(folder))
    assert (data["title"], data["verdict"]) == ("made/run-1", "invalid")
    assert data["numbers"] == "8 operations · 2 faults, 1 bit, 1 not measurable · 1 failover"
    assert data["replay"] == "harness run"
    assert data["notes"] == []
    (checker,) = data["checkers"]
    assert checker["operations_total"] == 2
    assert data["links"] == ["case.json", "results.json", "run.json", "history.parquet"]
    assert data["end"] == 1800 * MS
    assert [fault["lane"] for fault in data["faults"]] == [0, 0]


def head_of(tmp_path, *results, case=None, **others):
    folder = write_run(tmp_path, small_run(), results, case=case, **others)
    data = build(load_run(folder), read_results(folder))
    return data, render(data)


READ, RENAME = 10, 8  # indices of the stale read of `small_run`, and of a change before it


@pytest.mark.parametrize(
    ("verdict", "checker", "sentences", "details", "headline"),
    [
        (
            Verdict.INVALID, "linearizable-catalog",
            ("m1 answered op 10 (get) in term 1 while m2 led in term 2.", "Process 0 read."),
            {"rule": "stale-read"},
            "Stale read: m1 answered op 10 (get) in term 1 while m2 led in term 2",
        ),
        (
            Verdict.INVALID, "catalog-invariants", ("[I5 names-and-ids] ids-not-reused: Twice.",),
            {"rule": "ids-not-reused", "by_invariant": {"ids-not-reused": 1}},
            "Rule ids-not-reused broken: Twice",
        ),
        (
            Verdict.INVALID, "hms-events",
            ("44 violations of 2 rules, with one example each: unique 24, once 20.",
             "[unique] Op 2 shows two events."),
            {"rule": "unique", "by_invariant": {"unique": 24, "once": 20}},
            "Rule unique broken: Op 2 shows two events",
        ),
        (Verdict.UNKNOWN, "stats", (), {"rule": "no-bite"}, "Nothing was proven: r"),
        (
            Verdict.PERMITTED, "linearizable-catalog", (), {"rule": "stale-read"},
            "Deviations that the profile strict permits: r",
        ),
        (Verdict.VALID, "stats", (), {}, "Every promise checked was kept"),
    ],
)  # fmt: skip
def test_the_headline(tmp_path, verdict, checker, sentences, details, headline):
    data, text = head_of(tmp_path, CheckResult(checker, verdict, "r", sentences, (READ,), details))
    assert data["headline"] == headline
    assert f'<span id="headline">{html.escape(headline)}</span>' in text
    assert f">{verdict.value}</span>" in text
    rule = f" {details['rule']} · m1" if details else ""
    assert f"<title>{verdict.value.upper()}{rule} · seed 7</title>" in text


def test_circumstances_of_the_leader_itself_are_no_headline(tmp_path):
    bland = (
        "m2, leader of term 2, answered op 8 (rename); partition-leader had cut m1 off since 0.3 s."
    )
    result = CheckResult(
        "c", Verdict.INVALID, "r", (bland, "It was twice (op 8, rename, 0.6-0.7 s)."), (RENAME,)
    )
    assert head_of(tmp_path, result)[0]["headline"] == "r: It was twice (op 8)"


def test_the_box_of_next_steps(tmp_path):
    case = Case(seed=7, bugs=("NO-LEASE", "NOT-OURS"), nemeses=("partition-leader",))
    logs = {"m1.log": "0.5 up\n", "m2.log": "0.5 up\n"}
    result = CheckResult(
        "linearizable-catalog", Verdict.INVALID, "r", ("```\n<b>",), (READ,),
        {"rule": "stale-read"},
    )  # fmt: skip
    data, text = head_of(tmp_path, result, case=case, logs=logs, replay="harness run --case c.json")
    assert data["clean"]["command"] == "harness run --case c.json --bug none"
    assert data["stop"]["command"].startswith("harness replay ")
    assert data["stop"]["command"].endswith(f" --until op={READ}")
    assert data["log"] == {"words": "Log of m1 at 0.705 s", "node": "m1", "path": "m1.log"}
    assert [(name, place) for name, _, place in data["meanings"]] == [
        ("stale-read", "docs/checkers.md#reading-an-explanation"),
        ("NO-LEASE", "docs/bugs.md#no-lease"),
    ]
    assert html.escape(data["issue"]) in text
    assert data["issue"].startswith("**INVALID** `stale-read` (linearizable-catalog)")
    assert "harness run --env sim --case case.json" in data["issue"]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", data["issue"], re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["text", "sh", "json"]
    assert json.loads(blocks[2][1])["seed"] == 7


def test_a_run_and_its_shrunk_run_link_to_each_other(folder):
    assert build(load_run(folder), Results())["related"] == []
    shrunk = folder.with_name(shrunk_name(folder.name))
    shutil.copytree(folder, shrunk)
    (shrunk / "case.json").write_bytes(Case(seed=7, faults=(), ops=()).encode())
    data = build(load_run(folder), Results())
    assert data["related"] == [("Shrunk: 0 faults, 0 operations", f"../{shrunk.name}/report.html")]
    assert f'href="../{shrunk.name}/report.html"' in render(data)
    ((_, address),) = build(load_run(shrunk), Results())["related"]
    assert address == f"../{folder.name}/report.html"


def test_places_in_the_documentation_exist():
    places = {*head.DOCS.values(), *(page for _, page in head.DOCS_BY_PREFIX)}
    for page, _, anchor in (place.partition("#") for place in places):
        headings = re.findall(r"^#+ (.*)", (ROOT / "docs" / page).read_text(), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in headings]


def test_a_soaked_seed_is_replayed_from_its_case(tmp_path):
    folder = write_run(tmp_path, small_run(), [stale_read(small_run())], replay="")
    said = build(load_run(folder), read_results(folder))["replay"]
    environment = load_run(folder).record.environment
    assert shlex.split(said)[:5] == ["harness", "run", "--env", environment, "--case"]
    assert Path(shlex.split(said)[5]) == folder / "case.json"


def test_sentences_have_a_bound(tmp_path):
    history = small_run()
    lines = tuple(f"line {n}" for n in range(SENTENCES_MAX + 7))
    long = CheckResult("c", Verdict.INVALID, "r", lines)
    folder = write_run(tmp_path, history, [long])
    sentences = build(load_run(folder), read_results(folder))["checkers"][0]["sentences"]
    assert sentences[-1] == "... and 7 more, in results.json"
    assert len(sentences) == SENTENCES_MAX + 1


def test_a_window_is_said_to_be_one(folder):
    data = build(load_run(folder), read_results(folder), ops_max=3)
    assert data["ops"]["count"] == 3
    assert data["total"] == 8
    assert "Of 8 operations the 3 nearest" in data["notes"][0]
    assert len(data["faults"]) == 2  # the list is nevertheless complete
    assert sum(row["ok"] + row["fail"] + row["info"] for row in data["kinds"]) == 8


@pytest.mark.parametrize("text", ["", "{", '{"checkers": 3}', "[]"])
def test_broken_results_are_a_note_and_unknown(folder, text):
    (folder / "results.json").write_text(text)
    data = build(load_run(folder), read_results(folder))
    assert data["verdict"] == "unknown"
    assert "results.json cannot be read" in data["notes"][0]


def test_a_run_that_was_never_checked(folder):
    (folder / "results.json").unlink()
    data = build(load_run(folder), read_results(folder))
    assert (data["verdict"], data["checkers"]) == ("unknown", [])
    assert "never checked" in data["notes"][0]


# --- logs ------------------------------------------------------------------------------------


def wall_line(ms, event, **data):
    return json.dumps({"ts_ns": WALL + ms * MS, "level": "event", "event": event, "data": data},
                      separators=(",", ":"))  # fmt: skip


def test_wall_clock_logs_are_aligned_by_elections(tmp_path):
    (tmp_path / "logs").mkdir()
    lines = [wall_line(5000, "started"), "Traceback", wall_line(5101, "leader", term=1)]
    (tmp_path / "logs" / "m1.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "logs" / "m2.log").write_text(wall_line(5500, "leader", term=2) + "\n")
    (tmp_path / "logs" / "m3.log").write_text(wall_line(5900, "leader", term=3) + "\n")
    leaders = [(100 * MS, "m1", 1), (500 * MS, "m2", 2), (900 * MS, "m3", 3), (1, "m9", 4)]
    logs, sentence = read_logs(tmp_path, leaders, None)
    assert [log.times for log in logs] == [[0, 0, 101 * MS], [500 * MS], [900 * MS]]
    assert "3 elections" in sentence
    assert [log.path for log in logs] == ["logs/m1.log", "logs/m2.log", "logs/m3.log"]


def test_simulated_logs_lie_in_the_folder_and_count_seconds(tmp_path):
    (tmp_path / "m1.log").write_text('0.500000 leader {"group":"master","term":1}\n1.25 x {}\n')
    (tmp_path / "ops.log").write_text("not a log of a node")
    (tmp_path / "foreign.log").write_text("INFO no time\n")
    foreign, simulated = read_logs(tmp_path, [], None)[0]
    assert (foreign.times, foreign.clock) == ([None], "none")
    assert simulated.times == [500 * MS, 1250 * MS]


def test_without_a_common_election_wall_clock_logs_have_no_times(tmp_path):
    (tmp_path / "m1.log").write_text(wall_line(0, "leader", term=7))
    logs, sentence = read_logs(tmp_path, [(5, "m1", 8), (6, "m2", 7)], None)
    assert logs[0].times == [None]
    assert "could not be aligned" in sentence


def test_stamped_logs_are_aligned_by_the_clock_of_the_history(tmp_path):
    (tmp_path / "n1.log").write_text("@100.500000 2026-11-25 I | up\n@101.250000 led\n")
    (log,), sentence = read_logs(tmp_path, [], None, begin_ns=100 * S)
    assert (log.times, log.clock) == ([500 * MS, 1250 * MS], "stamp")
    assert sentence == "Lines of foreign programs have the time at which the harness received them."
    assert read_logs(tmp_path, [], None)[0][0].times == [None, None]


def test_of_a_long_log_the_lines_around_the_moment_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(logs_module, "LOG_CHARS_MAX", 200)
    text = "".join(f"{n}.000 line {n:03} xx\n" for n in range(100))
    (tmp_path / "m1.log").write_text(text)
    (log,) = read_logs(tmp_path, [], 50 * S)[0]
    assert 50 * S in log.times
    assert sum(len(line) + 1 for line in log.lines) <= 200
    assert abs(sum(log.times) / len(log.times) - 50 * S) <= S
    assert log.total == 100
    assert log.lines[0] == text.split("\n")[log.first - 1]
    (log,) = read_logs(tmp_path, [], None)[0]
    assert log.lines[-1] == "99.000 line 099 xx"


# --- the page as a file ----------------------------------------------------------------------


@given(st.text())
def test_json_in_a_script_cannot_end_it(text):
    safe = script_safe(json.dumps({"x": f"</script>{text}<!--"}))
    assert not set("<>&\u2028\u2029") & set(safe)
    assert json.loads(safe) == {"x": f"</script>{text}<!--"}


@pytest.mark.parametrize("deflate_from", [0, 10**9])
def test_the_page_holds_the_data_and_its_policy_names_its_script(folder, deflate_from):
    data = build(load_run(folder), read_results(folder))
    text = render(data, deflate_from=deflate_from)
    assert json.loads(json.dumps(data)) == data_of(text)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    for part, code in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"{part} &#x27;sha256-{digest}&#x27;" in policy
    assert "unsafe" not in policy
    assert "default-src &#x27;none&#x27;" in policy
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    assert text.count("</script>") == 2


def test_the_reporter_writes_one_file_and_is_registered(folder):
    before = {path.name for path in folder.iterdir()}
    made = load_plugin("reporters", "page").write(folder)
    assert folder / "report.html" == made
    assert {*before, "report.html"} == {path.name for path in folder.iterdir()}
    assert "INVALID".lower() in made.read_text()


def test_a_torn_run_has_a_page_that_says_so(folder):
    (folder / "run.json").unlink()
    text = PageReporter().write(folder).read_text()
    assert "the run was sealed but not finished" in data_of(text)["notes"]


def test_logs_that_were_not_kept_are_said_to_be_missing(tmp_path):
    (tmp_path / "warden.log").write_text("0.1 it watched\n")
    logs, sentence = read_logs(tmp_path, [], None)
    assert [log.node for log in logs] == ["warden"]
    assert "not kept" in sentence
    (tmp_path / "m1.log").write_text("0.1 it ran\n")
    assert "not kept" not in read_logs(tmp_path, [], None)[1]
