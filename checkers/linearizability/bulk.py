"""Very many small histories of registers, judged from columns.

A store of runs over many keys holds a small history for each key, and making objects of its
operations would cost a hundred times what judging them does. So the operations stay columns: the
native core looks for a legal order of each key's operations with one short search, and the order is
verified here, over whole columns at once, by replaying it: every operation that returned is in it,
none stands before one that had returned when it was called, and the register held what it was said
to hold. That shares nothing with the search but the meaning of the columns.

So this proves `valid` and nothing else. A key without an order (illegal, too hard, or not
representable) is left to `check_operations`, one by one; without the native core that is all of
them. A wrong order is a mistake of ours and raises `CertificateError`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability import native
from checkers.linearizability.verify import CertificateError

__all__ = ["CAS", "CAS_FAILED", "READ", "WRITE", "Ints", "Operations", "Orders", "find_orders"]

Ints = npt.NDArray[np.int64]

READ: Final = 0
WRITE: Final = 1
CAS: Final = 2
CAS_FAILED: Final = 3
STEPS_MAX: Final = 50_000  # a key that takes more is worth the ordinary searches
KEYS_AT_ONCE: Final = 2_000  # signals are looked at between two calls


class Operations(NamedTuple):
    """Operations of all keys, sorted by key, then call; values are numbers, the initial one is 0.

    `calls` and `ends` rise from key to key as within one: they are positions in all keys' rows.
    """

    starts: Ints  # where each key begins, and the end of the last
    calls: Ints
    ends: Ints  # -1: of unknown outcome
    kinds: npt.NDArray[np.uint8]
    first: Ints  # the value read, written or compared; 0 of a read that nobody saw
    second: Ints  # the new value of a compare-and-set

    def of_keys(self, begin: int, end: int) -> Operations:
        """Only the keys `begin..end`."""
        low, high = int(self.starts[begin]), int(self.starts[end])
        return Operations(
            starts=self.starts[begin : end + 1] - low,
            calls=self.calls[low:high],
            ends=self.ends[low:high],
            kinds=self.kinds[low:high],
            first=self.first[low:high],
            second=self.second[low:high],
        )


class Orders(NamedTuple):
    """By key: whether a verified legal order exists, and what the search remembered."""

    valid: npt.NDArray[np.bool_]
    configurations: Ints


def find_orders(operations: Operations, *, configurations_max: int) -> Orders:
    """Search all keys, and verify what was found."""
    keys = len(operations.starts) - 1
    valid = np.zeros(keys, np.bool_)
    configurations = np.zeros(keys, np.int64)
    search = native.register_orders()
    if search is None:
        return Orders(valid, configurations)
    for begin in range(0, keys, KEYS_AT_ONCE):
        end = min(keys, begin + KEYS_AT_ONCE)
        part = operations.of_keys(begin, end)
        orders, sizes, explored = search(
            tuple(np.ascontiguousarray(column).tobytes() for column in part[1:]),
            part.starts.astype("<i8").tobytes(),
            STEPS_MAX,
            configurations_max,
        )
        lengths = np.frombuffer(sizes, "<i8")
        verify(part, np.frombuffer(orders, "<u4").astype(np.int64), lengths)
        valid[begin:end] = lengths >= 0
        configurations[begin:end] = np.frombuffer(explored, "<i8")
    return Orders(valid, configurations)


def verify(operations: Operations, orders: Ints, lengths: Ints) -> None:
    """Replay the orders of all keys that have one; raises `CertificateError` at the first fault.

    `orders` holds them one behind another, numbers counted from the key's first operation;
    `lengths` says how long each is, -1 where there is none.
    """
    found = np.flatnonzero(lengths >= 0)
    sizes = lengths[found]
    total = int(sizes.sum())
    if total != len(orders):
        raise CertificateError(f"orders of {total} operations in all hold {len(orders)}")
    key = np.repeat(found, sizes)  # of each place in the orders
    limit = np.diff(operations.starts)
    if total and ((orders < 0) | (orders >= limit[key])).any():
        raise CertificateError("an order names an operation that its key does not have")
    placed = operations.starts[key] + orders
    times = np.bincount(placed, minlength=len(operations.calls))
    if (times > 1).any():
        raise CertificateError("an operation is twice in an order")
    returned = operations.ends >= 0
    has_order = np.repeat(lengths >= 0, limit)
    if (returned & has_order & (times == 0)).any():
        raise CertificateError("an operation that returned is not in its key's order")
    _verify_real_time(operations, placed)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    _verify_values(operations, placed, begins, key)


def _verify_real_time(operations: Operations, placed: Ints) -> None:
    """No operation stands before one that had returned when it was called."""
    if not len(placed):
        return
    never = np.iinfo(np.int64).max
    ends = np.where(operations.ends[placed] >= 0, operations.ends[placed], never)
    # Positions rise from key to key, so what a later key returns at never troubles an earlier one.
    earliest = np.minimum.accumulate(ends[::-1])[::-1]
    if (earliest < operations.calls[placed]).any():
        raise CertificateError("an order puts an operation before one that had returned already")


def _verify_values(operations: Operations, placed: Ints, begins: Ints, key: Ints) -> None:
    """Every answer is what the register gives in this order."""
    kinds, first = operations.kinds[placed], operations.first[placed]
    unknown = operations.ends[placed] < 0
    guess = (kinds == CAS) & unknown  # what it does depends on what it finds
    slow = np.zeros(len(operations.starts), np.bool_)
    slow[key[guess]] = True
    after = np.where(kinds == WRITE, first, operations.second[placed])
    changes = (kinds == WRITE) | (kinds == CAS)
    place = np.arange(len(placed))
    last = np.maximum.accumulate(np.where(changes, place, -1))
    before = np.concatenate([[-1], last[:-1]]) if len(placed) else last
    start = np.repeat(begins[:-1], np.diff(begins))
    held = np.where(before >= start, after[np.maximum(before, 0)], 0)
    wrong = ((kinds == READ) & ~unknown & (held != first)) | ((kinds == CAS) & (held != first))
    wrong |= (kinds == CAS_FAILED) & (held == first)
    if (wrong & ~slow[key]).any():
        raise CertificateError("an order gives an operation another answer than it had")
    for number in np.flatnonzero(np.diff(begins)):
        begin, end = int(begins[number]), int(begins[number + 1])
        if slow[key[begin]]:
            _replay(operations, placed[begin:end])


def _replay(operations: Operations, placed: Ints) -> None:
    """As `_verify_values`, one operation after another."""
    held = 0
    for at in placed.tolist():
        kind, first = int(operations.kinds[at]), int(operations.first[at])
        unknown = operations.ends[at] < 0
        if kind == WRITE:
            held = first
        elif kind == CAS and (held == first or not unknown):
            if held != first:
                raise CertificateError("an order lets a compare-and-set succeed that cannot")
            held = int(operations.second[at])
        elif kind == READ and not unknown and held != first:
            raise CertificateError("an order gives a read another value than it had")
        elif kind == CAS_FAILED and held == first:
            raise CertificateError("an order lets a compare-and-set fail that cannot")
