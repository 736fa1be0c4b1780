"""Puts latencies into log-linear buckets (integers), so that all engines get equal percentiles.

A bucket keeps the leading 1 bit of a value and the next `MANTISSA_BITS` bits. So a bucket is at
most 1/32 as wide as its lower bound, and its middle differs from each of its values by at most 1.6
%. The counts of two histograms are merged by addition, while rank sketches cannot merge tails
exactly. The code uses no floats, so SQL, numpy and this module agree on every bucket. The design
follows HdrHistogram (https://hdrhistogram.org).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MANTISSA_BITS: Final = 5
_FIRST: Final = 1 << MANTISSA_BITS


def lat_bucket(latency_ns: int) -> int:
    """Return the bucket of a latency. A negative one (the clock stepped back) counts as 0."""
    if latency_ns < _FIRST:
        return max(latency_ns, 0)
    exponent = latency_ns.bit_length() - 1
    octave = (exponent - MANTISSA_BITS + 1) << MANTISSA_BITS
    return octave + (latency_ns >> (exponent - MANTISSA_BITS)) - _FIRST


def lat_buckets(latencies_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the `lat_bucket` of each latency in a column, computed with integers only."""
    import numpy as np

    values = np.maximum(np.asarray(latencies_ns, np.int64), 0)
    exponent = np.zeros(values.shape, np.int64)
    rest = values.copy()
    for bits in (32, 16, 8, 4, 2, 1):  # find the leading bit by bisection
        high = rest >> bits
        more = high > 0
        exponent[more] += bits
        rest = np.where(more, high, rest)
    shift = np.maximum(exponent - MANTISSA_BITS, 0)
    octave = (exponent - MANTISSA_BITS + 1) << MANTISSA_BITS
    buckets = np.where(values < _FIRST, values, octave + (values >> shift) - _FIRST)
    return buckets.astype(np.int32)
