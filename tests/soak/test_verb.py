"""`harness soak` as a whole, with scripted results."""

import errno
import itertools
import os
import re
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from harness.cli import main
from harness.cli.soak import options as soak_options
from harness.cli.soak import verb as soak_verb
from harness.cli.soak.options import words_of_case
from harness.errors import (
    EXIT_CRASH,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    EXIT_VALID,
    InfrastructureError,
)
from harness.soak import CheckerVerdict, SeedResult
from harness.support.interrupts import holding_interrupts, sigterm_interrupts

DOCS = Path(__file__).parents[2] / "docs"
BASE = ("soak", "--target", "toy-register", "--workload", "register", "--keep", "failing")


KNOWN = """
[[known]]
signature = "c · invalid"
ticket = "T-1"
fails = {fails}
[[known]]
signature = "c · other"
ticket = "T-2"
note = "it was fixed"
"""


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """Return a function that makes a soak's workers give `items` in turn as verdicts.

    An exception among the items is raised.
    """
    monkeypatch.chdir(tmp_path)

    def script(*items):
        def answer(work, *, jobs, on_result, crew):
            del jobs, crew
            for item, job in zip(items, work, strict=False):
                if isinstance(item, BaseException):
                    raise item
                verdict, stop = item if isinstance(item, tuple) else (item, None)
                said = (CheckerVerdict("c", verdict, "why"),) if verdict != "crash" else ()
                permitted = {"stale-read": job.case.seed} if verdict == "permitted" else {}
                result = SeedResult(
                    permitted=permitted,
                    seed=job.case.seed,
                    verdict=verdict,
                    reason="" if verdict == "valid" else f"why {verdict}",
                    signature="" if verdict == "valid" else f"c · {verdict} · cut · get",
                    checkers=said if verdict != "valid" else (),
                    stop=stop,
                )
                if not on_result(result):
                    return False
            return True

        monkeypatch.setattr(soak_verb, "soak", answer)

    return script


@pytest.mark.parametrize(
    ("items", "code"),
    [
        (["valid"], EXIT_VALID),
        (["valid", "permitted"], EXIT_VALID),
        (["valid", "unknown"], EXIT_UNKNOWN),
        (["unknown", "crash", "valid"], EXIT_CRASH),
        (["crash", "unknown", "invalid"], EXIT_INVALID),
        (["invalid", KeyboardInterrupt()], EXIT_INVALID),
        (["crash", KeyboardInterrupt()], EXIT_INTERRUPTED),
        (["valid", KeyboardInterrupt()], EXIT_INTERRUPTED),
        ([KeyboardInterrupt()], EXIT_INTERRUPTED),
        (["valid", InfrastructureError("no disk")], EXIT_CRASH),
        (["invalid", InfrastructureError("no disk")], EXIT_INVALID),
        (["valid", ("valid", "disk full")], EXIT_CRASH),
        (["valid", ("invalid", "disk full")], EXIT_INVALID),
        ([("crash", "other code")], EXIT_CRASH),
    ],
)
def test_exit_codes(items, code, scripted, capsys):
    scripted(*items)
    assert main([*BASE, "--seeds", f"1..{len(items)}", "--quiet"]) == code
    out, err = capsys.readouterr()
    for text in ("disk full", "no disk", "other code"):
        told = any(text in str(item) for item in items)
        assert (f"harness: {text}" in err) == told
    assert "Traceback" not in err
    interrupted = any(isinstance(item, KeyboardInterrupt) for item in items)
    assert ("\ninterrupted" in out) == interrupted


def test_permitted_results_are_counted_in_a_table(scripted, capsys, tmp_path):
    scripted("permitted", "valid", "permitted")
    files = ("--summary-json", "out/s.json", "--junit", "out/j.xml")
    assert main([*BASE, *files, "--seeds", "1..3"]) == EXIT_VALID
    text, _ = capsys.readouterr()
    assert "3 of 3 seeds: 1 valid, 2 permitted, 0 invalid" in text
    assert re.search(
        r"permitted by the profile 'strict':\n +seeds +times\n  stale-read +2 +4\n", text + "\n"
    )
    found = msgspec.json.decode((tmp_path / "out/s.json").read_bytes())
    assert found["permitted"] == {"stale-read": {"seeds": 2, "times": 4}}
    assert found["verdicts"]["permitted"] == 2
    assert b"<failure" not in (tmp_path / "out/j.xml").read_bytes()


@pytest.mark.parametrize("seeds", ["1..9", "2..9", "3..9", "4..9"])
def test_impossible_workload_options_are_refused_before_any_draw(seeds, scripted):
    scripted()
    mixed = ("soak", "--target", "kudu", "--workload", "mixed", "--seeds", seeds, "--quiet")
    assert main([*mixed, "--env", "sim", "--tservers", "3"]) == EXIT_USAGE
    assert main([*mixed, "--env", "sim", "--tservers", "4"]) != EXIT_USAGE


@pytest.mark.parametrize("flag", ["--junit", "--summary-json", "--github-summary"])
def test_an_output_that_cannot_be_is_refused_before_any_seed_runs(flag, scripted, capsys, tmp_path):
    (tmp_path / "folder").mkdir()
    scripted(AssertionError("it ran"))
    assert main([*BASE, "--seeds", "1..2", flag, "folder"]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"harness: {flag} is the folder 'folder'; name a file\n")
    # An output path below a file is refused at the start; it could not be written hours later.
    (tmp_path / "file").write_text("kept")
    assert main([*BASE, "--seeds", "1..2", flag, "file/out"]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"harness: {flag} is 'file/out', which cannot be written: ")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("flag", ["--junit", "--summary-json", "--github-summary"])
def test_a_disk_without_room_may_have_some_by_the_end(flag, scripted, monkeypatch, tmp_path):
    def no_room(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    scripted("valid")
    monkeypatch.setattr(soak_options.Path, "touch", no_room)
    assert main([*BASE, "--seeds", "1..1", flag, "out"]) == EXIT_VALID
    assert (tmp_path / "out").stat().st_size > 0


def test_looking_whether_an_output_can_be_written_leaves_nothing(scripted, tmp_path):
    (tmp_path / "old").write_text("old")
    files = ("--junit", "new/j.xml", "--summary-json", "old")
    soak_options.check_writable(soak_options.parse_soak([*BASE[1:], "--seeds", "1", *files]))
    assert list((tmp_path / "new").iterdir()) == []
    assert (tmp_path / "old").read_text() == "old"


def test_special_files_are_written_in_place(scripted, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    scripted("valid")
    assert main([*BASE, "--seeds", "1..1", "--summary-json", "pipe"]) == EXIT_VALID
    assert msgspec.json.decode(os.read(reader, 65536))["seeds"] == 1
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


class TogetherThenNext:
    """An executor whose results come in two bursts of two, like the waves of Spark."""

    def run(self, job, seeds, *, url, take):
        assert url == "local[2]"
        while wave := list(itertools.islice(seeds, 2)):
            for seed in wave:
                take(msgspec.json.encode(SeedResult(seed=seed, verdict="valid", reason="")))


def test_progress_on_spark_is_reported_per_wave(scripted, monkeypatch, capsys):
    # an estimate from the first result of a wave would be far off
    monkeypatch.setattr(soak_verb, "load_plugin", lambda *_: TogetherThenNext())
    monkeypatch.setattr("harness.cli.status_line.StatusLine.due_s", lambda _: 1.0)
    assert main([*BASE, "--seeds", "1..4", "--spark-master", "local[2]"]) == EXIT_VALID
    told = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert list(dict.fromkeys(told)) == ["2/4 seeds", "4/4 seeds"]


def test_seeds_that_no_executor_ran_are_not_valid(scripted, capsys):
    scripted("valid")  # the second seed gets no result
    assert main([*BASE, "--seeds", "1..2", "--quiet"]) == EXIT_CRASH
    out, err = capsys.readouterr()
    assert "1 of 2 seeds" in out
    assert "not run: 1 seed;" in err


def test_earlier_findings_count_with_new_ones(scripted, capsys):
    scripted("invalid", KeyboardInterrupt())
    assert main([*BASE, "--seeds", "1..3"]) == EXIT_INVALID
    capsys.readouterr()
    scripted("valid", "valid", "valid")  # the invalid seed left no run, so it runs again
    assert main([*BASE, "--seeds", "1..3", "--json"]) == EXIT_VALID
    assert main([*BASE, "--seeds", "1..3"]) == EXIT_VALID
    assert "3 of 3 seeds (3 of them before): 3 valid" in capsys.readouterr().out


def test_stop_after(scripted, capsys):
    scripted("valid", "invalid", "unknown", "crash", "invalid", "valid")
    assert main([*BASE, "--seeds", "1..6", "--stop-after", "2", "--json"]) == EXIT_INVALID
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["seeds"] == 5
    assert [item["seed"] for item in found["results"]] == [1, 2, 3, 4, 5]


def test_all_outputs_tell_the_same(scripted, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    monkeypatch.setenv("GITHUB_SHA", "c0ffee")
    (tmp_path / "step.md").write_text("before\n")
    scripted("valid", "invalid", "unknown", "crash")
    files = ("--junit", "out/j.xml", "--summary-json", "out/s.json", "--github-summary")
    assert main([*BASE, *files, "--seeds", "1..4", "--label", "v1"]) == EXIT_INVALID
    text, err = capsys.readouterr()
    assert "4 of 4 seeds: 1 valid, 1 invalid, 1 unknown, 1 crash" in text
    case = "--target toy-register --workload register --nemesis any"
    replay = f"harness run --env sim {case} --seed 2"
    assert f"  seed 2: why invalid\n  {replay}\n" in text
    found = msgspec.json.decode((tmp_path / "out/s.json").read_bytes())
    assert found["schema_version"] == 2
    assert found["verdicts"] == {
        "valid": 1, "permitted": 0, "unknown": 1, "invalid": 1, "crash": 1
    }  # fmt: skip
    assert found["results"][1]["replay"] == replay
    assert [(group["verdict"], group["seeds"]) for group in found["signatures"]] == [
        ("invalid", [2]),
        ("crash", [4]),
        ("unknown", [3]),
    ]
    suite = ET.parse(tmp_path / "out/j.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "2")
    properties = {item.get("name"): item.get("value") for item in suite.find("properties")}
    assert properties["commit"] == "c0ffee"
    assert properties["label"] == "v1"
    assert suite.find("testcase/failure").text.endswith(f"replay: {replay}")
    summary = (tmp_path / "step.md").read_text()
    assert summary.startswith(
        "before\n<h3>1 of 4 seeds invalid, 1 unknown, 1 crash: 3 signatures</h3>\n"
    )
    assert summary.count("<td><b>") == 3
    assert err.count("::error title=") == 3


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (["valid", ("valid", "disk full")], "disk full"),
        (["valid", ("invalid", "seed 2 (invalid) could not be kept")], "seed 2 (invalid) could"),
        (["valid", InfrastructureError("no disk")], "no disk"),
        (["valid", KeyboardInterrupt()], "interrupted"),
        (["valid"], "not run: 1 seed;"),
        (["valid", "valid"], None),
    ],
)
def test_a_soak_that_did_not_come_to_its_end_is_green_nowhere(items, why, scripted, tmp_path):
    scripted(*items)
    files = ("--junit", "j.xml", "--summary-json", "s.json")
    assert (main([*BASE, *files, "--seeds", "1..2"]) == EXIT_VALID) == (why is None)
    suite = ET.parse(tmp_path / "j.xml").getroot().find("testsuite")
    assert suite.get("tests") == str(len(suite.findall("testcase"))) == "2"
    errors = [case.find("error") for case in suite.findall("testcase[@name='whole soak']")]
    assert (len(errors), suite.get("errors")) == ((0, "0") if why is None else (1, "1"))
    assert all(why in error.get("message") for error in errors)
    found = msgspec.json.decode((tmp_path / "s.json").read_bytes())
    assert why in ("interrupted", None) or why in found["stopped"]


def test_every_key_of_the_json_object_is_documented(scripted, capsys):
    scripted("valid", "invalid", "crash")
    main([*BASE, "--seeds", "1..3", "--json"])
    found = msgspec.json.decode(capsys.readouterr().out)
    section = (DOCS / "soak.md").read_text().split("### The JSON object")[1].split("\n#")[0]
    of_soak, of_result = (
        {
            key
            for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
            for key in row.split("`")[1::2]
        }
        for part in section.split("| key of a result | what |")
    )
    assert set(found) == of_soak
    # not listed: stops are not recorded, and states belong to the search
    unlisted = {"stop", "reached"}
    assert {*SeedResult.__struct_fields__, "replay"} - unlisted == of_result
    always = {"seed", "verdict", "reason", "replay", "run"}
    for result in found["results"]:
        assert always <= set(result) <= of_result
    assert sum(found["verdicts"].values()) == found["seeds"] == 3


def test_json_is_bounded_and_keeps_failures(scripted, capsys, monkeypatch):
    monkeypatch.setattr("harness.cli.soak.output.RESULTS_MAX", 3)
    scripted("valid", "valid", "valid", "invalid", "valid", "crash")
    main([*BASE, "--seeds", "1..6", "--json"])
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [item["seed"] for item in found["results"]] == [4, 6, 1]
    assert (found["results_left_out"], found["seeds"]) == (3, 6)


def test_a_case_from_a_file_is_replayed_from_a_file(scripted, capsys, tmp_path):
    case = tmp_path / "case.json"
    case.write_text('{"seed": 5, "target": "toy-register", "workload": "register", "rate": 7.0}')
    scripted("crash")
    assert main(["soak", "--case", str(case), "--seeds", "3", "--json"]) == EXIT_CRASH
    (result,) = msgspec.json.decode(capsys.readouterr().out)["results"]
    words = result["replay"].split()
    assert words[:5] == ["harness", "run", "--env", "sim", "--case"]
    assert main(["run", *words[2:], "--dry-run"]) == 0
    replayed = msgspec.json.decode(capsys.readouterr().out)
    assert (replayed["seed"], replayed["rate"]) == (3, 7.0)


def test_replays_drop_only_options_that_a_run_lacks():
    own = [
        ("--env", "sim"),
        ("--jobs", "2"),
        ("--label", "x"),
        ("--json",),
        ("--fresh",),
        ("--quiet",),
        ("--github-summary",),
        ("--github-summary", "file"),
        ("--spark-master", "local[2]"),
        ("--store", "s"),
    ]
    kept = [("--nemesis", "kill-leader"), ("--bug=KUDU-765",), ("--profile", "s")]
    for order in itertools.permutations(own, 2):
        for first, second in itertools.permutations(kept, 2):
            mixed = [*first, *order[0], *second, *order[1], "--seeds=1..2", "--rate", "5"]
            assert words_of_case(mixed) == [*first, *second, "--rate", "5"]


def test_every_option_of_the_soak_is_known_to_replays(capsys):
    assert main(["soak", "--help"]) == 0
    flags = {word.strip(",[]=") for word in capsys.readouterr().out.split() if word[:2] == "--"}
    assert main(["run", "--help-all"]) == 0
    of_run = {word.strip(",[]=") for word in capsys.readouterr().out.split() if word[:2] == "--"}
    own = sorted({flag for flag in flags - of_run if flag[2:3].isalpha()} - {"--seeds"})
    values = {"--jobs": "2", "--stop-after": "3", "--artefacts": "4", "--fresh": None}
    values |= {"--junit-group": "signature", "--search": "guided", "--shrink": None}
    mixed = ["--seeds", "1..2"]
    for flag in own:
        value = values.get(flag, "x")
        mixed += [flag] if value is None else [flag, value]
    assert words_of_case(mixed) == []


@pytest.mark.parametrize("block", [sigterm_interrupts, holding_interrupts])
def test_signals_are_taken_only_where_they_can_be(block):
    done = []

    def in_a_thread():
        with block():
            done.append(1)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert done == [1]


class Drawing:
    def write(self, folder):
        (folder / "drawing").write_text("x")
        return folder / "drawing"


@pytest.fixture
def runs(scripted, monkeypatch):
    """Build a store of failing runs (seeds 2 to 6) and passing runs, and install a reporter."""
    from harness.cli.run import artefacts
    from harness.cli.soak import output as soak_output
    from harness.soak import campaign

    monkeypatch.setattr(artefacts, "load_plugin", lambda *_: Drawing())
    monkeypatch.setattr("harness.cli.soak.options.chosen_reporters", lambda _: ["drawing"])
    monkeypatch.setattr(campaign.Campaign, "_is_kept", lambda *_: True)

    def results(found):
        for seed in range(1, 7):
            folder = found.spec.folder / f"r{seed}"
            folder.mkdir(exist_ok=True, parents=True)
            (folder / "case.json").write_text("{}")
            verdict = "valid" if seed == 1 else "invalid"
            yield SeedResult(seed=seed, verdict=verdict, reason="r", run=f"r{seed}")

    monkeypatch.setattr(campaign.Campaign, "results", results)
    monkeypatch.setattr(soak_output, "note", lambda _: None)
    return scripted


@pytest.mark.parametrize(
    ("given", "drawn"),
    [
        (("--artefacts", "2"), ["r2", "r3"]),
        (("--artefacts", "0"), []),
        ((), ["r2", "r3", "r4", "r5", "r6"]),
    ],
)
def test_the_first_failing_runs_are_drawn_once(given, drawn, runs, tmp_path, capsys):
    runs("valid")
    store = tmp_path / "store" / "register-any"
    (store / "r4").mkdir(parents=True)
    for _ in range(2):
        main([*BASE, *given, "--seeds", "1..1"])
        assert sorted(path.parent.name for path in store.glob("*/drawing")) == drawn
    for path in store.glob("*/drawing"):
        path.write_text("by the reporter")
    main([*BASE, *given, "--seeds", "1..1"])
    assert {path.read_text() for path in store.glob("*/drawing")} <= {"by the reporter"}


def test_an_interrupted_soak_draws_nothing(runs, tmp_path, capsys):
    runs(KeyboardInterrupt())
    main([*BASE, "--seeds", "1..1"])
    assert list(tmp_path.rglob("drawing")) == []


def test_a_soak_that_stopped_after_enough_failures_has_nothing_more_to_do(
    scripted, monkeypatch, capsys
):
    monkeypatch.setattr("harness.soak.campaign.Campaign._is_kept", lambda *_: True)
    scripted("valid", "invalid", "valid")
    assert main([*BASE, "--seeds", "1..3", "--stop-after", "1"]) == EXIT_INVALID
    scripted(AssertionError("no seed may run"))
    assert main([*BASE, "--seeds", "1..3", "--stop-after", "1"]) == EXIT_INVALID
    assert "2 of 3 seeds (2 of them before): 1 valid, 1 invalid" in capsys.readouterr().out
    scripted("valid")
    assert main([*BASE, "--seeds", "1..3", "--json"]) == EXIT_INVALID
    assert msgspec.json.decode(capsys.readouterr().out)["seeds"] == 3


@pytest.mark.parametrize(
    ("verdicts", "fails", "code"),
    [
        (("valid", "invalid"), False, EXIT_VALID),
        (("invalid", "invalid"), False, EXIT_VALID),
        (("valid", "invalid"), True, EXIT_INVALID),
        (("unknown", "invalid"), False, EXIT_UNKNOWN),
        (("crash", "invalid"), False, EXIT_CRASH),
    ],
)
def test_known_failures_are_marked_and_excused_if_asked(scripted, capsys, verdicts, fails, code):
    Path("harness.toml").write_text(KNOWN.format(fails=str(fails).lower()))
    scripted(*verdicts)
    files = ("--junit", "junit.xml", "--summary-json", "soak.json", "--github-summary", "out.md")
    assert main([*BASE, "--seeds", "1..2", *files]) == code

    out, errors = capsys.readouterr()
    assert "c · invalid · cut (" in out
    assert "[known: T-1]" in out
    assert ("KNOWN  2 of 2 seeds: every promise" in out) == (code == EXIT_VALID)
    assert "gone: c · other (T-2, it was fixed)" in out
    assert ("c · unknown · cut (1 seed: 1) [new]" in out) == ("unknown" in verdicts)
    assert "<td>known: T-1</td>" in Path("out.md").read_text()
    assert ("invalid%3A c" in errors) == fails
    suite = ET.parse("junit.xml").getroot()[0]
    tag = "failure" if fails else "skipped"
    assert len(suite.findall(f"testcase/{tag}")) == verdicts.count("invalid")
    content = msgspec.json.decode(Path("soak.json").read_bytes())
    assert {"signature": "c · other", "ticket": "T-2", "note": "it was fixed", "fails": True} in (
        content["gone"]
    )


def test_known_failures_of_a_file_replace_those_of_the_folder(scripted, capsys):
    Path("harness.toml").write_text(KNOWN.format(fails="false"))
    Path("none.toml").write_text("")
    scripted("invalid")
    assert main([*BASE, "--seeds", "1..1", "--known", "none.toml"]) == EXIT_INVALID
    assert "known" not in capsys.readouterr().out.split("INVALID")[1]
