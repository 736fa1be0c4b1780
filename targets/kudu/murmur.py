"""The hash by which Kudu assigns rows to buckets: 64-bit Murmur2 (`util/hash_util.h`)."""

from __future__ import annotations

from typing import Final

_MASK: Final = (1 << 64) - 1
_PRIME: Final = 0xC6A4A7935BD1E995
_SHIFT: Final = 47


def murmur2(data: bytes, seed: int = 0) -> int:
    """Return the hash of `data`, an unsigned number of 64 bits."""
    value = (seed ^ len(data) * _PRIME) & _MASK
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * _PRIME & _MASK
        word = (word ^ word >> _SHIFT) * _PRIME & _MASK
        value = (value ^ word) * _PRIME & _MASK
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _PRIME & _MASK
    value = (value ^ value >> _SHIFT) * _PRIME & _MASK
    return value ^ value >> _SHIFT
