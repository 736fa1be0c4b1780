"""`harness check --elle`, also on histories from public bug reports."""

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID
from tests.checkers.conformance.formats import CONFORMANCE

PUBLIC = CONFORMANCE / "public"


def txn(number: int, value: str, f: str = ":f :txn, ") -> str:
    """Write a transaction as two lines of EDN."""
    return "".join(
        f"{{:process {number}, :type :{kind}, {f}:value {value}}}\n" for kind in ("invoke", "ok")
    )


def check(path: Path, *arguments: str) -> int:
    return main(["check", str(path), *arguments])


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    """Write a history whose first read returns a value that no transaction wrote."""
    path = tmp_path / "noted.edn"
    path.write_text(txn(0, "[[:r 1 9]]") + txn(0, "[[:w 1 1]]") + txn(0, "[[:r 1 1]]"))
    return path


def test_notes_are_shown_with_valid(noted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(noted, "--elle", "rw-register") == EXIT_VALID
    assert "note: Op 0 read 9 from key 1" in capsys.readouterr().out

    assert check(noted, "--elle", "rw-register", "--json") == EXIT_VALID
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 1


@pytest.mark.parametrize("f", ["", ":f :read, "])
def test_f_is_not_looked_at(f: str, tmp_path: Path) -> None:
    path = tmp_path / "f.edn"
    path.write_text(txn(0, "[[:append 1 1]]", f) + txn(1, "[[:r 1 [1]]]", f))
    assert check(path, "--elle", "list-append") == EXIT_VALID


def test_anomalies_are_requested_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stale.edn"
    path.write_text(txn(0, "[[:append 1 1]]") + txn(1, "[[:r 1 []]]"))
    weak = ("--elle", "list-append", "--consistency-model", "serializable")
    assert check(path, *weak) == EXIT_VALID
    assert check(path, *weak, "--anomalies", "G1a,G-single-item-realtime") == EXIT_INVALID
    for name, words in (("G7", "unknown"), ("G-MSR", "not looked for")):
        capsys.readouterr()
        assert check(path, *weak, "--anomalies", name) == EXIT_USAGE
        assert words in capsys.readouterr().err


REPORTED = {
    "own-future.edn": ("rw-register", "strict-serializable", EXIT_INVALID),
    "elle8.edn": ("rw-register", "strict-serializable", EXIT_INVALID),
    "elle16.edn": ("rw-register", "strict-serializable", EXIT_INVALID),
    "maelstrom56.edn": ("rw-register", "strict-serializable", EXIT_INVALID),
    "elle17.edn": ("list-append", "strong-session-snapshot-isolation", EXIT_INVALID),
    "elle21-session.edn": ("list-append", "strong-session-snapshot-isolation", EXIT_INVALID),
    "f-not-txn.edn": ("list-append", "strict-serializable", EXIT_VALID),
    "everything-wrong.edn": ("list-append", "linearizable", EXIT_UNKNOWN),
}


@pytest.mark.skipif(not PUBLIC.is_dir(), reason=f"no public reports at {PUBLIC}")
@pytest.mark.parametrize("file", REPORTED)
def test_public_reports_have_their_answers(file: str) -> None:
    kind, model, code = REPORTED[file]
    assert check(PUBLIC / file, "--elle", kind, "--consistency-model", model) == code
