"""A guessed model convicts a history only if no other plausible model accepts it."""

import dataclasses
import json

import pytest

from harness.cli import main
from harness.cli.check.guess import UNDECIDED_MODEL, guessed
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID
from harness.formats import doubt_about
from harness.ops import History, ModelSettings, Verdict
from tests.support.histories import written

ADDED = [("0!", "add", 1), ("0+", "add", 1)]
STALE = [*ADDED, ("0!", "read", None), ("0+", "read", []), ("0!", "read", None)]
IN = [("0!", "enqueue", 1), ("0+", "enqueue", 1), ("0!", "drain", None)]
MOVE = {"from": 0, "to": 1, "amount": 5}
MOVED = [("0!", "transfer", MOVE), ("0+", "transfer", MOVE), ("0!", "read", None)]
ROWS = [*MOVED, ("0+", "read", {"0": 5, "1": 5}), ("0!", "read", None)]
CASES = {
    "funded": ("bank", [*ROWS, ("0+", "read", {"0": 0, "1": 10})], EXIT_VALID),
    "overdrawn": ("bank", [*ROWS, ("0+", "read", {"0": -1, "1": 11})], EXIT_UNKNOWN),
    "robbed": ("bank", [*ROWS, ("0+", "read", {"0": -1, "1": 10})], EXIT_INVALID),
    "valid": ("set", [*ADDED, ("0!", "read", None), ("0+", "read", [1])], EXIT_VALID),
    "stale": ("set", [*STALE, ("0+", "read", [1])], EXIT_UNKNOWN),
    "lost": ("set", [*STALE, ("0+", "read", [])], EXIT_INVALID),
    "wrong": ("set", [*STALE, ("0+", "read", [1, 2])], EXIT_INVALID),
    "once": ("total-queue", [*IN, ("0+", "drain", [1])], EXIT_VALID),
    "twice": ("total-queue", [*IN, ("0+", "drain", [1, 1])], EXIT_UNKNOWN),
    "lost-in-queue": ("total-queue", [*IN, ("0+", "drain", [])], EXIT_INVALID),
}
MILDER = {
    "bank": "bank-overdraft",
    "set": "set-full",
    "total-queue": "at-least-once-queue",
}


def keyed(ops):
    return [(word, f, [key, value]) for key in (7, 8) for word, f, value in ops]


def file_of(ops, tmp_path):
    path = tmp_path / "h.jsonl"
    types = {"!": "invoke", "+": "ok", "-": "fail"}
    path.write_text(
        "\n".join(
            json.dumps({"process": int(w[0]), "type": types[w[1]], "f": f, "value": value})
            for w, f, value in ops
        )
    )
    return str(path)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_guess_convicts_no_history_that_the_milder_model_accepts(name, apart, tmp_path, capsys):
    model, ops, code = CASES[name]
    path = file_of(keyed(ops) if apart else ops, tmp_path)
    assert main(["check", path, "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == model
    if code == EXIT_UNKNOWN:
        assert f"--model {model} or --model {MILDER[model]}" in report["reason"]
        assert main(["check", path, "--model", model]) == EXIT_INVALID
        assert main(["check", path, "--model", MILDER[model]]) == EXIT_VALID


@pytest.mark.parametrize("name", CASES)
def test_an_import_records_no_guess_that_matters(name, tmp_path, capsys):
    model, ops, code = CASES[name]
    arguments = ["import", file_of(ops, tmp_path), "--store", str(tmp_path / "store")]
    assert main(arguments) == (EXIT_USAGE if code == EXIT_UNKNOWN else EXIT_VALID)
    assert main([*arguments, "--model", model]) == EXIT_VALID


def test_what_the_milder_model_cannot_read_is_judged_by_the_suggested_one():
    ops = [*STALE, ("0+", "read", [1]), ("0!", "remove", 1), ("0+", "remove", 1)]
    check = guessed("set", History(written(*ops), foreign=True), ModelSettings())
    assert check.check(time_limit_s=9, draw=False)[0].verdict is Verdict.INVALID


def test_a_history_that_the_suggested_model_accepts_is_not_read_by_the_milder_one():
    check = guessed("set", History(written(*CASES["valid"][1]), foreign=True), ModelSettings())
    alone = dataclasses.replace(check, second=None)
    assert alone.check(time_limit_s=9, draw=False)[0].verdict is Verdict.VALID


def test_an_undecided_guess_shows_both_verdicts():
    check = guessed("set", History(written(*STALE, ("0+", "read", [1]))), ModelSettings())
    result, drawn = check.check(time_limit_s=9, draw=True)
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, UNDECIDED_MODEL)
    assert drawn is None
    assert result.explanation[0].startswith("As set, invalid: ")
    assert result.explanation[-1].startswith("As set-full, valid: ")


def test_a_milder_model_that_does_not_convict_is_enough():
    twice = [("0!", "dequeue", None), ("0+", "dequeue", 1)] * 2
    ops = [*IN[:2], *twice, ("0!", "drain", None), ("0?", "drain", None)]
    check = guessed("total-queue", History(written(*ops), foreign=True), ModelSettings())
    result = check.check(time_limit_s=9, draw=False)[0]
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, UNDECIDED_MODEL)
    assert "unknown as at-least-once-queue" in result.reason


HELD = [("0!", "acquire", None), ("0+", "acquire", None)]
FREED = [("0!", "release", None), ("0+", "release", None)]
OTHER = [("1!", "acquire", None), ("1+", "acquire", None)]
PERMITS = [("0!", "acquire", 1), ("0+", "acquire", 1), ("1!", "acquire", 2), ("1+", "acquire", 2)]
REFUSED = [("0!", "release", None), ("0-", "release", None)]


@pytest.mark.parametrize(
    ("ops", "code"),
    [
        ([*HELD, *HELD, *FREED, *FREED, *OTHER], EXIT_UNKNOWN),  # a reentrant lock
        ([*HELD, *HELD, *OTHER], EXIT_UNKNOWN),  # a semaphore, or a lock of two holders
        (PERMITS, EXIT_UNKNOWN),
        ([*HELD, *OTHER], EXIT_UNKNOWN),  # a semaphore
        ([*HELD, *REFUSED, *HELD], EXIT_UNKNOWN),
        ([*HELD, *FREED, *HELD, *OTHER], EXIT_UNKNOWN),
        ([*FREED], EXIT_UNKNOWN),  # a semaphore that every client may release
        ([*HELD, *FREED, *OTHER], EXIT_VALID),
        # as in Knossos, any process may release
        (
            [*HELD, ("1!", "release", None), ("1+", "release", None), *HELD],
            EXIT_VALID,
        ),
    ],
)
def test_a_lock_that_may_be_a_semaphore_is_not_convicted(ops, code, tmp_path, capsys):
    path = file_of(ops, tmp_path)
    assert main(["check", path, "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "mutex"
    if code == EXIT_UNKNOWN:
        assert "say --model mutex" in report["reason"]
        assert main(["check", path, "--model", "mutex"]) == EXIT_INVALID
    imported = main(["import", path, "--store", str(tmp_path / "store")])
    assert imported == (EXIT_USAGE if code == EXIT_UNKNOWN else EXIT_VALID)


def test_two_locks_of_one_process_are_no_reentrant_lock():
    ops = [(word, f, [key, None]) for key in (1, 2) for word, f, _ in HELD]
    ops += [(word, f, [1, None]) for word, f, _ in OTHER]
    assert "reentrant" not in doubt_about("mutex", History(written(*ops)))
    again = [*ops, *((word, f, [2, None]) for word, f, _ in HELD)]
    assert "reentrant" in doubt_about("mutex", History(written(*again)))
