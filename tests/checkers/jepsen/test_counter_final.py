"""Counters of Maelstrom: only the final reads are judged, by the rule of its own checker."""

import itertools
import json
import random

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID, HistoryError
from harness.formats.edn.jepsen import load_edn
from harness.ops import Verdict
from tests.support.histories import judged_by, parsed

EARLY = [0, 7, -3]
SEEDS = 300


def add(process, amount, end):
    return [(process, kind, "add", amount, "") for kind in ("invoke", end)]


def read(process, value, mark=""):
    return [(process, "invoke", "read", None, mark), (process, "ok", "read", value, mark)]


def edn(ops):
    return "\n".join(
        f"{{:process {process}, :type :{kind}, :f :{f}, "
        f":value {'nil' if value is None else value}{mark}}}"
        for process, kind, f, value, mark in ops
    )


FINAL = ", :final? true"
ADDED = add(0, 2, "ok")
STALE = [*ADDED, *read(0, 0)]


def drawn(rng):
    """Draw adds and stale reads, then one final read per process; return them with the verdict."""
    ops, certain, lost = [], 0, []
    for process in range(rng.randint(1, 7)):
        amount, end = rng.choice([1, 2, 5, -3]), rng.choice(["ok", "ok", "fail", "info"])
        ops += add(process, amount, end) + read(100, rng.choice(EARLY))
        certain += amount if end == "ok" else 0
        lost += [amount] if end == "info" else []
    sums = {
        certain + sum(itertools.compress(lost, taken))
        for taken in itertools.product((0, 1), repeat=len(lost))
    }
    shown = [rng.choice([*sums, certain, certain + rng.randint(-4, 4)]) for _ in range(2)]
    for process, value in enumerate(shown, 100):
        ops += read(process, value, FINAL)
    return ops, Verdict.VALID if sums.issuperset(shown) else Verdict.INVALID


def test_final_reads_are_judged_as_maelstrom_judges_them(tmp_path):
    path, seen = tmp_path / "h.edn", set()
    for seed in range(SEEDS):
        ops, verdict = drawn(random.Random(seed))
        path.write_text(edn(ops))
        assert judged_by("counter-final", load_edn(path))[0].verdict is verdict, seed
        seen.add(verdict)
    assert seen == {Verdict.VALID, Verdict.INVALID}


@pytest.mark.parametrize("suffix", ["edn", "json"])
@pytest.mark.parametrize(
    ("ops", "guess", "code"),
    [
        ([*STALE, *read(1, 2, FINAL)], "counter-final", EXIT_VALID),
        ([*STALE, *read(1, 3, FINAL)], "counter-final", EXIT_INVALID),
        ([*STALE, *read(1, 2), *read(0, 2)], "counter", EXIT_UNKNOWN),
        ([*STALE, *read(1, 2), *read(0, 3)], "counter", EXIT_INVALID),
        ([*STALE, *add(0, 1, "ok")], "counter", EXIT_INVALID),
        ([*ADDED, *read(1, 2)], "counter", EXIT_VALID),
    ],
)
def test_marked_reads_suggest_the_model(ops, guess, code, suffix, tmp_path, capsys):
    path = tmp_path / f"h.{suffix}"
    path.write_text(
        edn(ops)
        if suffix == "edn"
        else "\n".join(
            json.dumps({"process": p, "type": t, "f": f, "value": v, "final?": bool(mark)})
            for p, t, f, v, mark in ops
        )
    )
    assert main(["check", str(path), "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == guess
    if code == EXIT_UNKNOWN:
        assert "--model counter or --model counter-final" in report["reason"]


def test_marks_survive_an_import_and_an_export(tmp_path, capsys):
    path = tmp_path / "h.edn"
    path.write_text(edn([*STALE, *read(1, 2, FINAL), *add(1, 9, "ok")]))
    assert main(["import", str(path), "--store", str(tmp_path / "store")]) == EXIT_VALID
    run = capsys.readouterr().out.split()[0]
    assert main(["check", run]) == EXIT_VALID
    again = tmp_path / "again.edn"
    assert main(["export", run, "--output", str(again)]) == EXIT_VALID
    assert main(["check", str(again)]) == EXIT_VALID


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("0 add 2; 1 read -> 0; 0 read -> 2; 1 read -> 2", Verdict.VALID),
        ("0 add 2; 1 read -> 0; 0 read -> 2; 1 read -> 1", Verdict.INVALID),
        # the process of a lost add was replaced
        ("0 add 2; 1!? add 4; 2 read -> 0; 2 read -> 6; 0 read -> 2", Verdict.VALID),
        ("0 add 2; 1!? add 4; 2 read -> 0; 2 read -> 6; 0 read -> 4", Verdict.INVALID),
        ("0 add 2; 1 read -> 0; 0!? read; 1!? read", Verdict.UNKNOWN),
        ("0 add 2", Verdict.UNKNOWN),
    ],
)
def test_the_last_read_of_every_process_needs_no_mark(text, verdict):
    assert judged_by("counter-final", parsed(text))[0].verdict is verdict


@pytest.mark.parametrize("text", ["1 read -> 0; 0 add 2", "0 read -> 0; 1 add 2; 1 read -> 2"])
def test_without_final_reads_the_model_refuses(text):
    with pytest.raises(HistoryError, match="final"):
        judged_by("counter-final", parsed(text))


def test_a_register_ignores_the_mark(tmp_path, capsys):
    path = tmp_path / "h.edn"
    written = [(0, kind, "write", 1, "") for kind in ("invoke", "ok")]
    path.write_text(edn([*written, *read(0, "nil"), *read(0, 1, FINAL)]))
    assert main(["check", str(path)]) == EXIT_VALID
    assert "match any value" in capsys.readouterr().out
    assert main(["check", str(path), "--model", "counter-final"]) == EXIT_USAGE
