"""A Raft library from PyPI that nobody here wrote, judged as it is and with a planted race."""

import pytest

from tests.programs.test_aiohttp_service import run

pytest.importorskip("consensual")
SHORT = ["--target", "consensual", "--cas-percent", "30", "--rate", "60", "--time-limit", "3"]
CUTS = ["--nemesis", "partition-halves", "--interval", "1.5", "--duration", "0.7"]


@pytest.mark.slow
def test_the_library_keeps_a_register_and_local_reads_are_found(capsys, tmp_path):
    code, report = run(capsys, tmp_path, *SHORT, *CUTS, seed=1)
    assert (code, report["verdict"]) == (0, "valid"), report["checkers"]
    code, again = run(capsys, tmp_path, *SHORT, *CUTS, seed=1)
    assert (again["trace_digest"], again["history_sha256"]) == (
        report["trace_digest"],
        report["history_sha256"],
    )
    code, report = run(capsys, tmp_path, *SHORT, *CUTS, "--local-reads", seed=1)
    assert (code, report["verdict"]) == (1, "invalid")
    blamed = [each["checker"] for each in report["checkers"] if each["verdict"] == "invalid"]
    assert blamed == ["linearizable-register"]
