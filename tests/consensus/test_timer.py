"""Election timeouts are drawn at the right moments and from the right range."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from targets.kudu.consensus.failure_detector import ElectionTimeouts
from targets.kudu.flags import Flags

MS = 1_000_000


def test_a_timeout_holds_until_it_ran_out_or_an_election_failed():
    timeouts = ElectionTimeouts(Flags(), Random(1))
    first = timeouts.current_ns(0)
    assert timeouts.current_ns(0) == first

    timeouts.redraw()
    second = timeouts.current_ns(0)
    assert second != first

    third = timeouts.current_ns(1)
    assert third != second
    assert timeouts.current_ns(1) == third


@given(st.integers(0, 100), st.integers(0, 1000))
def test_timeouts_stay_within_their_bounds(failed_elections, seed):
    timeouts = ElectionTimeouts(Flags(), Random(seed))
    longest_ms = min(1500 * 1.5 ** (failed_elections + 1), 20_000)

    assert 1500 * MS <= timeouts.current_ns(failed_elections) <= longest_ms * MS
    assert 0 <= timeouts.draw_first_ns() <= 300 * MS
