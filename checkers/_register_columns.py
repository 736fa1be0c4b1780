"""Histories over many keys as columns, understood as operations on registers.

What `linearizable._register_operation` does with one pair of ops, this does with whole columns; a
test holds both equal, op by op. Keys with anything out of the ordinary (ops in no possible order,
values that are lists, another vocabulary) are marked, and left to the ordinary way, which says what
is wrong with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from checkers.linearizability.bulk import CAS, CAS_FAILED, READ, WRITE, Ints, Operations

__all__ = ["KeyColumns", "Registers", "registers_of"]

INVOKE, OK, FAIL, INFO = 0, 1, 2, 3
ABSENT: Final = -1
MALFORMED: Final = -2
ABSENT_MARK: Final = object()  # what no JSON is
_SCALARS: Final = (int, float, str, bool, type(None))


class KeyColumns(Protocol):
    """The rows of many keys, sorted by (key, index)."""

    @property
    def starts(self) -> Ints:
        """Where each key's rows begin, and the end of the last."""
        ...

    @property
    def processes(self) -> Ints:
        """Client processes."""
        ...

    @property
    def types(self) -> npt.NDArray[np.uint8]:
        """0 invoke, 1 ok, 2 fail, 3 info."""
        ...

    @property
    def fs(self) -> Ints:
        """Numbers of `f_names`."""
        ...

    @property
    def f_names(self) -> Sequence[str]:
        """The kinds of operation."""
        ...

    @property
    def values(self) -> Ints:
        """Numbers of `value_texts`."""
        ...

    @property
    def value_texts(self) -> Sequence[str]:
        """The distinct values, as JSON."""
        ...


class Registers(NamedTuple):
    """Operations by key; `malformed` keys have none. `unknown` counts those of unknown outcome."""

    operations: Operations
    counts: Ints
    unknown: Ints
    malformed: npt.NDArray[np.bool_]


class _Values(NamedTuple):
    """What the distinct values say, each field as a number of a scalar, `ABSENT` or `MALFORMED`."""

    value: Ints
    old: Ints
    new: Ints
    mismatch: npt.NDArray[np.bool_]


def registers_of(columns: KeyColumns) -> Registers:
    """The operations on registers that start as null, in the vocabulary "register"."""
    keys = len(columns.starts) - 1
    key = np.repeat(np.arange(keys), np.diff(columns.starts))
    malformed = np.zeros(keys, np.bool_)
    ends = _completions(columns, key, malformed)
    calls = np.flatnonzero(columns.types == INVOKE)
    done = ends[calls]
    known = np.maximum(done, 0)
    outcome = np.where(done >= 0, columns.types[known], INFO)
    unknown = outcome == INFO
    said = _understand(columns.value_texts)
    asked, answered = columns.values[calls], columns.values[known]
    f = _codes(columns.f_names)[columns.fs[calls]]
    is_read, is_write, is_cas = f == READ, f == WRITE, f == CAS
    failed_cas = is_cas & (outcome == FAIL) & said.mismatch[answered]
    kinds = np.where(failed_cas, CAS_FAILED, f)
    seen = is_read & (outcome == OK)
    first = np.where(is_write, said.value[asked], np.where(is_cas, said.old[asked], 0))
    first = np.where(seen, said.value[answered], first)
    second = np.where(is_cas, said.new[asked], 0)
    bad = (f == MALFORMED) | (first < 0) | (second < 0)
    malformed[key[calls[bad]]] = True
    kept = ~((outcome == FAIL) & ~failed_cas) & ~malformed[key[calls]]
    of_key = key[calls[kept]]
    counts = np.bincount(of_key, minlength=keys)
    operations = Operations(
        starts=np.concatenate([[0], np.cumsum(counts)]),
        calls=calls[kept],
        ends=np.where(unknown, -1, done)[kept],
        kinds=kinds[kept].astype(np.uint8),
        first=first[kept],
        second=second[kept],
    )
    lost = np.bincount(of_key[unknown[kept]], minlength=keys)
    return Registers(operations, counts, lost, malformed)


def _codes(names: Sequence[str]) -> Ints:
    known = {"read": READ, "write": WRITE, "cas": CAS}
    return np.array([known.get(name, MALFORMED) for name in names], np.int64)


def _completions(columns: KeyColumns, key: Ints, malformed: npt.NDArray[np.bool_]) -> Ints:
    """The row of each invocation's completion, or -1; marks keys in which ops do not pair up.

    Within one process of one key, invocations and completions must take turns, and nothing may
    follow an `info`.
    """
    rows = len(key)
    ends = np.full(rows, -1, np.int64)
    if not rows:
        return ends
    _, process = np.unique(columns.processes, return_inverse=True)
    group = key * (int(process.max()) + 1) + process
    order = np.argsort(group, kind="stable")
    kind = columns.types[order]
    same = group[order][1:] == group[order][:-1]  # as the one before
    opens = kind == INVOKE
    pairs = same & opens[:-1] & ~opens[1:]
    ends[order[:-1][pairs]] = order[1:][pairs]
    alone = ~opens
    alone[1:] &= ~pairs  # a completion without an invocation right before it
    twice = same & opens[:-1] & opens[1:]
    after_info = same & (kind[:-1] == INFO)
    for rows_of in (order[alone], order[1:][twice], order[1:][after_info]):
        malformed[key[rows_of]] = True
    malformed[key[columns.processes < 0]] = True  # no client
    return ends


def _understand(texts: Sequence[str]) -> _Values:
    """Parse every distinct value once; equal scalars (true is not 1) get equal numbers, null 0."""
    numbers: dict[tuple[bool, Any], int] = {(False, None): 0}

    def number(content: dict[str, Any], name: str) -> int:
        found = content.get(name, ABSENT_MARK)
        if found is ABSENT_MARK:
            return ABSENT
        if not isinstance(found, _SCALARS):
            return MALFORMED
        return numbers.setdefault((isinstance(found, bool), found), len(numbers))

    decode = msgspec.json.Decoder().decode
    value, old, new = ([MALFORMED] * len(texts) for _ in range(3))
    mismatch = [False] * len(texts)
    for place, text in enumerate(texts):
        try:
            content = decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        if not isinstance(content, dict):
            continue
        value[place] = number(content, "value")
        old[place] = number(content, "old")
        new[place] = number(content, "new")
        mismatch[place] = content.get("result") == "mismatch"
    return _Values(
        np.array(value, np.int64),
        np.array(old, np.int64),
        np.array(new, np.int64),
        np.array(mismatch, np.bool_),
    )
