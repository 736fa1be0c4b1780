"""`harness check` judges foreign histories and refuses bad input."""

import bz2
import csv
import dataclasses
import errno
import gzip
import json
import lzma
import os
import re
from pathlib import Path

import pytest

from checkers.foreign import model as engine
from checkers.foreign.model import UNOBSERVED
from checkers.linearizability import CheckOutcome, Result, check_operations, proof
from harness.case import Case
from harness.cli import main
from harness.cli.check.counterexample_page import OPS_SHOWN_MAX, render_page
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID, HistoryError
from harness.formats.edn.jepsen import load_edn
from harness.ops import CheckResult, Counterexample, History, Op, OpType, PartialOrder, Verdict
from harness.store import RunFolder, write_parquet
from tests.checkers.conformance.formats import CONFORMANCE, rows
from tests.support.programs import python

needs_data = pytest.mark.skipif(
    not rows(), reason=f"no conformance data at {CONFORMANCE}; set HARNESS_CONFORMANCE"
)


def run(arguments, capsys):
    code = main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refusal(arguments, capsys):
    """Return the single line that says why the input was refused."""
    code, out, err = run(arguments, capsys)
    assert (code, out, len(err.splitlines())) == (EXIT_USAGE, "", 1)
    return err


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


def edn(*ops):
    return "".join(
        f"{{:process {process}, :type :{kind}, :f :{f}, :value {value}}}\n"
        for process, kind, f, value in ops
    )


GOOD = edn((0, "invoke", "write", 1), (0, "ok", "write", 1), (1, "invoke", "read", "nil")) + edn(
    (1, "ok", "read", 1)
)
STALE = GOOD + edn((1, "invoke", "read", "nil"), (1, "ok", "read", 0))


@pytest.mark.slow
@needs_data
def test_every_supplied_history_has_its_verdict(capsys):
    expected = {str(CONFORMANCE / row.file): (row.model, row.expected) for row in rows()}
    folders = [CONFORMANCE / name for name in ("generated", "knossos", "porcupine")]
    code, out, err = run([*folders, "--json"], capsys)
    found = {o["path"]: (o["model"], o["verdict"]) for o in objects(out)}
    assert found == expected
    assert code == EXIT_INVALID
    assert "skipped 2 files" in err  # the skipped files are licences


ELLE_SAMPLE = 25  # every 25th row; tests/elle checks the whole table


@needs_data
@pytest.mark.parametrize("kind", ["list-append", "rw-register"])
def test_the_real_elle_is_agreed_with(kind, capsys):
    with (CONFORMANCE / "elle" / f"{kind}.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))[::ELLE_SAMPLE]
    different = 0
    for row in table:
        flags = [f"--{option}" for option in row["options"].split()]
        path = CONFORMANCE / "elle" / row["file"]
        asked = ["--elle", kind, "--consistency-model", row["model"], *flags]
        code, out, _ = run([path, *asked, "--json"], capsys)
        (found,) = objects(out)
        answer = found["verdict"], set(found["not"])
        if kind == "rw-register" and answer != (row["verdict"], set(row["not"].split())):
            # Stricter than Elle, which applies some rules only to lists, and ignores orders that
            # the model implies.
            assert answer[0] == "invalid"
            different += 1
        else:
            assert answer == (row["verdict"], set(row["not"].split()))
        assert code == (EXIT_VALID if answer[0] == "valid" else EXIT_INVALID)
    assert different <= len(table) // 10


def test_json_has_one_object_a_line_and_the_worst_verdict_decides(tmp_path, capsys):
    (tmp_path / "a.edn").write_text(GOOD)
    (tmp_path / "b.edn").write_text(STALE)
    assert run([tmp_path / "a.edn", "--json"], capsys)[0] == EXIT_VALID
    code, out, err = run([tmp_path / "b.edn", tmp_path / "a.edn", "--json"], capsys)
    first, second = objects(out)
    assert (code, err) == (EXIT_INVALID, "")
    assert (first["verdict"], second["verdict"]) == ("invalid", "valid")
    assert first["path"] == str(tmp_path / "b.edn")
    keys = [
        "path",
        "model",
        "verdict",
        "operations",
        "configurations",
        "seconds",
        "reason",
        "anomalies",
        "not",
    ]
    assert list(first)[: len(keys)] == keys
    assert (first["operations"], first["anomalies"], first["not"]) == (3, [], [])
    # The two reads contradict each other, whether or not the write took effect.
    core, orders = first["certificate"], second["certificate"]
    assert (core["core"], core["minimal"], core["part"]) == ([2, 4], True, "the whole history")
    assert core["confirmed_by"] == "the verifier, by enumeration"
    assert (orders["orders"], orders["never"]) == ([[0, 2]], [])
    assert orders["confirmed_by"] == "the verifier, by replay"
    assert not list(tmp_path.glob("*.html"))


LIE = CheckOutcome(result=Result.OK, reason="", witness=((0, 2, 4),))
TRUTH = check_operations  # the original function, which the tests below replace


@pytest.mark.parametrize("flag", ["--json", None])
def test_a_verdict_whose_certificate_does_not_hold_is_a_crash(flag, tmp_path, capsys, monkeypatch):
    (tmp_path / "b.edn").write_text(STALE)
    monkeypatch.setattr(engine, "check_operations", lambda *_, **__: LIE)
    code, out, _ = run([tmp_path / "b.edn", *([flag] if flag else [])], capsys)
    assert code == EXIT_UNKNOWN
    why = "the check crashed: its own certificate does not hold for the verdict Ok: operation 4"
    assert why in out
    if flag:
        (found,) = objects(out)
        assert (found["verdict"], found["certificate"]) == ("unknown", None)


def test_an_invalid_core_is_a_crash(tmp_path, capsys, monkeypatch):
    def shortened(*arguments, **named):
        outcome = TRUTH(*arguments, **named)
        failure = dataclasses.replace(outcome.failure, core=(4,))
        return dataclasses.replace(outcome, failure=failure)

    (tmp_path / "b.edn").write_text(STALE)
    monkeypatch.setattr(engine, "check_operations", shortened)
    code, out, _ = run([tmp_path / "b.edn"], capsys)
    assert code == EXIT_UNKNOWN
    assert "does not hold for the verdict Illegal: core (4,) has a legal order" in out


def test_an_unconfirmed_verdict_is_unknown(tmp_path, capsys, monkeypatch):
    (tmp_path / "b.edn").write_text(STALE)
    monkeypatch.setattr(proof, "VERIFIER_CORE_MAX", 0)
    monkeypatch.setattr(proof, "_confirm", lambda *_: "")
    code, out, _ = run([tmp_path / "b.edn", "--json"], capsys)
    (found,) = objects(out)
    assert (code, found["verdict"]) == (EXIT_UNKNOWN, "unknown")
    assert "no independent method could confirm" in found["reason"]
    assert found["certificate"]["confirmed_by"] == ""


def test_folders_are_searched_and_other_files_skipped(tmp_path, capsys):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "x.edn").write_text(GOOD)
    (tmp_path / "README.md").write_text("no history")
    (tmp_path / "loop").symlink_to(tmp_path)
    code, out, err = run([tmp_path, "--json"], capsys)
    assert (code, len(objects(out))) == (EXIT_VALID, 1)
    readme = str(tmp_path / "README.md")
    assert err == f"harness: skipped 1 file without a history: {readme!r}\n"


@pytest.mark.parametrize("hidden", [".soak/a.log", ".results/tables/t.parquet", ".x.edn"])
def test_hidden_files_are_histories_only_if_named(hidden, tmp_path, capsys):
    (tmp_path / "seen.edn").write_text(GOOD)
    path = tmp_path / hidden
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(STALE)
    code, out, err = run([tmp_path, "--json"], capsys)
    assert (code, len(objects(out)), err) == (EXIT_VALID, 1, "")
    for named in dict.fromkeys([path, tmp_path / Path(hidden).parts[0]]):
        assert run([named, "--model", "cas-register"], capsys)[0] == EXIT_INVALID


def test_jobs_give_the_same_lines(tmp_path, capsys):
    for number in range(4):
        (tmp_path / f"{number}.edn").write_text(STALE if number == 2 else GOOD)
    code, out, _ = run([tmp_path, "--json", "--jobs", 2], capsys)
    _, alone, _ = run([tmp_path, "--json"], capsys)
    plain = [{**o, "seconds": 0} for o in objects(out)]
    assert plain == [{**o, "seconds": 0} for o in objects(alone)]
    assert code == EXIT_INVALID


def test_the_meaning_of_a_failure_depends_on_the_model(tmp_path, capsys):
    path = tmp_path / "h.edn"
    path.write_text(GOOD + edn((0, "invoke", "cas", "[1 2]"), (0, "fail", "cas", "[1 2]")))
    assert run([path, "--model", "cas-register"], capsys)[0] == EXIT_VALID
    assert run([path, "--model", "etcd-cas-register"], capsys)[0] == EXIT_INVALID


REUSED = edn(
    (0, "invoke", "write", 1), (0, "info", "write", 1),
    (0, "invoke", "read", "nil"), (0, "ok", "read", "nil"),
    (1, "invoke", "read", "nil"), (1, "ok", "read", 1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"),
    [(REUSED, EXIT_VALID), (REUSED.replace("read, :value 1", "read, :value 2"), 1)],
)
def test_a_process_that_goes_on_after_info_is_accepted_with_a_note(text, code, tmp_path, capsys):
    (tmp_path / "reused.edn").write_text(text)

    found, _, err = run(["--model", "cas-register", tmp_path / "reused.edn"], capsys)

    assert found == code
    assert "1 time)" in err


def test_only_a_foreign_history_may_use_a_process_again(tmp_path, capsys):
    file = tmp_path / "reused.edn"
    file.write_text(REUSED)

    with pytest.raises(HistoryError):
        History(load_edn(file))
    assert main(["import", str(file), "--store", str(tmp_path / "store")]) == EXIT_USAGE
    assert str(file) in capsys.readouterr().err


def test_a_parquet_file_alone_and_a_run_with_a_model(tmp_path, capsys):
    ops = [Op(0, 0, 0, OpType.INVOKE, "read", {}), Op(1, 1, 0, OpType.OK, "read", {"value": 5})]
    write_parquet(tmp_path / "alone.parquet", History(ops))
    code, out, _ = run([tmp_path / "alone.parquet", "--json"], capsys)
    assert (code, objects(out)[0]["model"]) == (EXIT_INVALID, "cas-register")
    folder = RunFolder(tmp_path / "store", "r", "1")
    folder.write_case(Case(seed=0, target="imported", workload="register", faults=()))
    folder.seal(History(ops))
    code, out, _ = run([folder.path, "--model", "register", "--json"], capsys)
    (found,) = objects(out)
    assert (code, found["html"]) == (EXIT_INVALID, str(folder.path / "counterexample.html"))
    code, out, _ = run([tmp_path / "store", "--json"], capsys)
    (found,) = objects(out)
    assert "linearizable-register" in found["model"]
    assert (code, found["verdict"], found["run"]) == (EXIT_INVALID, "invalid", str(folder.path))


def test_text_tells_why_and_the_picture_is_written_where_asked(tmp_path, capsys):
    (tmp_path / "b.edn").write_text(STALE)
    code, out, _ = run([tmp_path / "b.edn", "--html", tmp_path / "pages"], capsys)
    assert code == EXIT_INVALID
    assert "No order of the operations that respects real time explains read 0 by process 1" in out
    assert "Certificate: 2 operations, none of which can be left out, confirmed by" in out
    (page,) = (tmp_path / "pages").iterdir()
    assert f"picture: {page}" in out
    data = embedded(page.read_text())
    assert data["failing"] == 4
    assert data["orders"][0] == {
        "steps": [0, 2],
        "states": ["the register holds 1", "the register holds 1"],
        "pending": [4],
    }


def embedded(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


def test_nothing_in_a_history_can_become_markup():
    evil = "</script><script>alert(1)</script>@@DATA@@\u2028"
    ops = [Op(0, 0, 0, OpType.INVOKE, evil, evil), Op(1, 1, 0, OpType.OK, evil, evil, evil)]
    result = CheckResult(evil, Verdict.INVALID, evil, (evil,), (), {"drawings": [evil]})
    shown = Counterexample(0, (0,), (PartialOrder((0,), (evil,)),), {0: evil})
    text = render_page(History(ops), [result], shown, path=evil, model=evil)
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == 2
    assert "\u2028" not in text.partition('id="data">')[2]
    assert "http" not in text.replace("http-equiv", "")  # the page loads nothing from the network
    data = embedded(text)
    assert (data["reason"], data["ops"][0][5]) == (evil, evil)


def test_a_page_shows_the_surroundings_of_a_very_long_history():
    ops = []
    for n in range(OPS_SHOWN_MAX + 50):
        ops.append(Op(2 * n, 0, 0, OpType.INVOKE, "read"))
        ops.append(Op(2 * n + 1, 0, 0, OpType.OK, "read", 1))
    failing = 2 * (OPS_SHOWN_MAX + 49)
    result = CheckResult("m", Verdict.INVALID, "why")
    text = render_page(
        History(ops), [result], Counterexample(failing, (0, failing)), path="p", model="m"
    )
    data = embedded(text)
    shown = {row[0] for row in data["ops"]}
    assert len(shown) == OPS_SHOWN_MAX
    assert {0, failing} <= shown
    assert data["explanation"] == [f"Of {OPS_SHOWN_MAX + 50} operations, 20000 are shown."]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (STALE + edn((7, "ok", "read", 1)), [], "line 7, column 1: op 6: process 7 completes"),
        (GOOD + edn((0, "invoke", "read", 1)) * 2, [], "line 6, column 1: op 5: process 0 invokes"),
        (
            GOOD + edn((0, "invoke", "fly", 1)),
            ["--model", "cas-register"],
            "line 5, column 1: op 4",
        ),
        (GOOD, ["--elle", "list-append"], "line 1, column 1: op 0 has the value 1"),
        (GOOD, ["--model", "multi-register"], "line 2, column 1: op 1 is 'write'"),
        (GOOD, ["--model", "kv-string"], "line 1, column 1: op 0 is 'write'"),
        (GOOD, ["--model", "catalog"], "line 2, column 1: op 1"),
        (GOOD[:-5], [], "line 4, column 1: the file ends before this is closed"),
        ("[" * 5000, [], "line 1, column 203: nested deeper"),
        ("\x7fELF\0\0", [], "begins no history"),
        (edn((0, "invoke", "cas", "[1 2 3]")), [], "line 1, column 1: op 0 is 'cas'"),
        (edn((0, "invoke", "write", "{:a 1}")), [], "line 1, column 1: op 0 is 'write'"),
    ],
)
def test_bad_histories_are_one_located_error_and_cost_no_other_its_verdict(
    text, arguments, words, tmp_path, capsys
):
    (tmp_path / "a.edn").write_text(GOOD)
    (tmp_path / "b.edn").write_text(text)
    chosen = arguments or ["--model", "cas-register"]
    paths = [tmp_path / "b.edn"] if arguments else [tmp_path / "a.edn", tmp_path / "b.edn"]
    code, out, err = run([*paths, *chosen, "--json"], capsys)
    assert code == EXIT_USAGE
    judged = [(o["path"], o["verdict"]) for o in objects(out)]
    assert judged == [(str(path), "valid") for path in paths[:-1]]
    assert len(err.splitlines()) == 1
    assert str(tmp_path / "b.edn") in err
    assert words in err


def test_a_folder_without_histories_is_an_error(tmp_path, capsys):
    code, _, err = run([tmp_path], capsys)
    assert (code, "there is no history in it" in err) == (EXIT_USAGE, True)


def test_a_pipe_is_refused_since_its_head_is_gone_once_looked_at(tmp_path, capsys):
    # `harness check <(cat stale.edn)` once read only the head of the file and reported VALID.
    reading, writing = os.pipe()
    os.write(writing, STALE.encode())
    os.close(writing)
    try:
        err = refusal([f"/dev/fd/{reading}"], capsys)
    finally:
        os.close(reading)
    assert f"'/dev/fd/{reading}' is not a regular file" in err


def test_pipes_within_folders_are_no_histories(tmp_path, capsys):
    os.mkfifo(tmp_path / "a-pipe.edn")
    (tmp_path / "h.edn").write_text(STALE)
    code, out, _ = run([tmp_path, "--json"], capsys)
    assert (code, [Path(found["path"]).name for found in objects(out)]) == (EXIT_INVALID, ["h.edn"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "only blanks and comments"),
        (b"; one\n\n ; two", "only blanks and comments"),
        (gzip.compress(STALE.encode(), mtime=0), "compressed (gzip); unpack it"),
        (b"\x28\xb5\x2f\xfd\x04\x58", "compressed (zstd); unpack it"),
        (lzma.compress(STALE.encode()), "compressed (xz); unpack it"),
        (bz2.compress(STALE.encode()), "compressed (bzip2); unpack it"),
        (b"PK\x03\x04 and so on", "compressed (zip); unpack it"),
    ],
)
def test_files_without_a_history_are_described(content, words, tmp_path, capsys):
    (tmp_path / "h.edn").write_bytes(content)
    err = refusal([tmp_path / "h.edn", "--model", "cas-register"], capsys)
    assert f"{tmp_path / 'h.edn'}, line 1, column 1: " in err
    assert words in err


@pytest.mark.parametrize("asked", [".", "closed", "closed/h.edn"])
def test_an_unreadable_folder_is_one_line(asked, tmp_path, capsys, monkeypatch):
    (tmp_path / "closed").mkdir()
    (tmp_path / "open.edn").write_text(GOOD)
    real = os.stat

    def refusing(path, *arguments, **named):
        if "closed" in Path(path).parts[:-1]:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr("os.stat", refusing)
    code, out, err = run([tmp_path / asked], capsys)
    assert (code, len(err.splitlines())) == (EXIT_USAGE, 1)
    assert ("VALID" in out) == (asked == ".")  # the readable file is judged anyway
    assert f"cannot read '{tmp_path}/closed/" in err
    assert "Permission denied" in err


def test_a_name_that_no_file_can_have_is_one_line(tmp_path, capsys):
    err = refusal([tmp_path / ("x" * 5000)], capsys)
    assert "File name too long" in err
    assert len(err) < 500


def test_no_time_is_unknown(tmp_path, capsys):
    crowd = [(n, "invoke", "write", n) for n in range(14)] + [
        (n, "info", "write", n) for n in range(14)
    ]
    crowd += [(90 + n, kind, "read", 50) for n in range(1) for kind in ("invoke", "ok")]
    (tmp_path / "h.edn").write_text(edn(*crowd))
    code, out, _ = run([tmp_path / "h.edn", "--check-time-limit", "1e-9", "--json"], capsys)
    (found,) = objects(out)
    assert (code, found["verdict"]) == (EXIT_UNKNOWN, "unknown")
    assert "time limit" in found["reason"]


NEMESIS_ALONE = edn((":nemesis", "info", "kill", "nil"))


@pytest.mark.parametrize(
    "text", [NEMESIS_ALONE, edn((0, "invoke", "write", 1), (0, "fail", "write", 1))]
)
def test_a_history_in_which_nothing_happened_is_linearizable(text, tmp_path, capsys):
    (tmp_path / "h.edn").write_text(text)
    code, out, _ = run([tmp_path / "h.edn", "--json"], capsys)
    (found,) = objects(out)
    assert (code, found["verdict"], found["operations"]) == (EXIT_VALID, "valid", 0)
    assert found["reason"] == engine.NOTHING_HAPPENED


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("cas-register", edn((0, "invoke", "write", 1), (0, "info", "write", 1))),
        ("cas-register", edn((0, "invoke", "write", 1), (1, "invoke", "read", "nil"))),
        ("cas-register", edn((0, "invoke", "read", "nil"), (0, "ok", "read", "nil"))),
        ("register", edn((0, "invoke", "write", 1), (0, "ok", "write", 1)) + NEMESIS_ALONE),
        ("set", edn((0, "invoke", "add", 1), (0, "ok", "add", 1))),
        ("queue", edn((0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1))),
        ("etcd-cas-register", "INFO  jepsen.util - 0 :invoke :write 1"),
        ("register", "1 7 0 3\n1 8 2 5\n"),
        (
            "catalog",
            edn((0, "invoke", "create", '{:name "a", :nonce "n", :columns []}')),
        ),
    ],
)
def test_unchecked_histories_are_unknown(model, text, tmp_path, capsys):
    (tmp_path / "h.edn").write_text(text)
    code, out, _ = run([tmp_path / "h.edn", "--model", model, "--json"], capsys)
    (found,) = objects(out)
    assert (code, found["verdict"]) == (EXIT_UNKNOWN, "unknown")
    assert UNOBSERVED in found["reason"] or "looked at" in found["reason"]


@pytest.mark.parametrize("model", [[], ["--model", "set"], ["--elle", "list-append"]])
@pytest.mark.parametrize("text", ["[]", "; none\n()"])
def test_a_collection_without_operations_is_no_history(text, model, tmp_path, capsys):
    (tmp_path / "h.edn").write_text(text)
    err = refusal([tmp_path / "h.edn", *model], capsys)
    assert f"{tmp_path / 'h.edn'}: it contains no operations" in err


@pytest.mark.parametrize("name", ['"w1"', ":client", ":nemesis-1"])
def test_a_client_with_a_name_is_refused_and_never_left_out(name, tmp_path, capsys):
    (tmp_path / "h.edn").write_text(
        GOOD + edn((name, "invoke", "read", "nil"), (name, "ok", "read", 99))
    )
    err = refusal([tmp_path / "h.edn"], capsys)
    process = name.strip(':"')
    assert f"h.edn, line 5, column 1: op 4: the process {process!r} has a name" in err
    assert "give each client a number" in err
    assert main(["import", str(tmp_path / "h.edn"), "--store", str(tmp_path / "s")]) == EXIT_USAGE


def test_notes_of_named_processes_are_still_read(tmp_path, capsys):
    notes = edn((":nemesis", "info", "kill", "nil"), (":monitor", "info", "seen", 7))
    (tmp_path / "h.edn").write_text(notes + GOOD + notes)
    assert run([tmp_path / "h.edn"], capsys)[0] == EXIT_VALID


def test_help_imports_no_checker():
    script = (
        "import sys\nfrom harness.cli import main\n"
        "try:\n    main(['check', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('checkers', 'numpy', 'pyarrow')]"
    )
    python(script)
