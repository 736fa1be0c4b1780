"""A few hundred of the random histories of `bench.judging.fuzz`, which runs any number of them."""

import pytest

from bench.judging import fuzz
from checkers.linearizability import CheckOutcome, Result
from checkers.linearizability.native import is_native, native_status

HISTORIES = 700


@pytest.mark.slow
@pytest.mark.skipif(not is_native(), reason=native_status())
def test_native_python_and_brute_force_agree_and_certificates_hold() -> None:
    tally = fuzz.Tally()
    fuzz.fuzz(range(HISTORIES), tally)
    assert tally.mismatches == []
    assert sum(tally.histories.values()) == HISTORIES
    for name in fuzz.NAMES:
        assert 0.1 < tally.invalid[name] / tally.histories[name] < 0.9, name
    assert tally.lost > HISTORIES / 5


def test_a_search_that_lies_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    lie = CheckOutcome(result=Result.OK, reason="", witness=())
    monkeypatch.setattr(fuzz, "check_operations", lambda *_, **__: lie)
    monkeypatch.setattr(fuzz, "certify", lambda *_: None)
    tally = fuzz.Tally()
    fuzz.fuzz(range(40), tally)
    assert len(tally.mismatches) == 40
    assert any("but found Ok, Ok" in line for line in tally.mismatches)
    assert any("not confirmed" in line for line in tally.mismatches)
