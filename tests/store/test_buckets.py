"""Buckets of latencies leave no gaps, and are as narrow as promised."""

from hypothesis import given
from hypothesis import strategies as st

from harness.store import lat_bucket
from harness.store.buckets import MANTISSA_BITS

EDGES = sorted({max(0, (1 << bits) + delta) for bits in range(62) for delta in (-2, -1, 0, 1, 2)})


def bucket_bounds(bucket):
    """Return the smallest value of a bucket, and the smallest value above it."""
    first = 1 << MANTISSA_BITS
    if bucket < first:
        return bucket, bucket + 1
    shift = (bucket >> MANTISSA_BITS) - 1
    low = ((bucket & (first - 1)) + first) << shift
    return low, low + (1 << shift)


def bucket_middle(bucket):
    """Return the representative value of a bucket: its middle, rounded down."""
    low, high = bucket_bounds(bucket)
    return low + ((high - low) >> 1)


def test_the_buckets_tile_the_numbers_without_gap():
    end = 0
    for bucket in range(58 * 32):
        low, high = bucket_bounds(bucket)
        assert low == end
        assert lat_bucket(low) == bucket == lat_bucket(high - 1)
        end = high


@given(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**62)))
def test_a_value_lies_in_its_bucket_which_is_narrow(value):
    low, high = bucket_bounds(lat_bucket(value))

    assert low <= value < high
    assert (high - low) * 32 <= max(low, 32)
    assert abs(bucket_middle(lat_bucket(value)) - value) * 62 <= max(low, 62)


def test_small_values_and_clocks_that_step_back():
    assert [lat_bucket(value) for value in (-5, 0, 1, 31, 32, 33, 63, 64)] == [
        *(0, 0, 1, 31, 32, 33, 63, 64)
    ]
    assert lat_bucket(66) == 65
