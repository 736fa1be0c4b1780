"""Verifies the anomalies that are not cycles, with one function per type of anomaly.

Every function takes the operations of a case and (key, value, next value, details). It returns
whether the operations show the anomaly, or `None` if it cannot decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkers.elle.recorded import NIL, Raw
from checkers.elle.verify.versions import list_orders, precedes, promises

VERSIONS_MAX = 500


def _aborted_read(raw: Raw, ops: Any, key: Any, value: Any, *_: Any) -> bool:
    reader, writer = ops
    wrote = writer.type == "fail" and value in raw.wrote(writer, key)
    return wrote and any(value in seen for seen in raw.reads(reader, key))


def _intermediate_read(raw: Raw, ops: Any, key: Any, value: Any, *_: Any) -> bool:
    reader, writer = ops
    overwrote = value in raw.wrote(writer, key)[:-1]
    return overwrote and any(seen[-1:] == (value,) for seen in raw.reads(reader, key))


def _garbage(raw: Raw, ops: Any, key: Any, value: Any, *_: Any) -> bool | None:
    (reader,) = ops
    if (key, value) in raw.writer or not any(value in s for s in raw.reads(reader, key)):
        return False
    if raw.lists:
        return True
    values = {
        s for txn in raw.on[key] for (s,) in raw.reads(txn, key) if (key, s) not in raw.writer
    }
    return len(values) > 1 or None


def _duplicate(raw: Raw, ops: Any, key: Any, value: Any, *_: Any) -> bool:
    (reader,) = ops
    return raw.lists and any(seen.count(value) > 1 for seen in raw.reads(reader, key))


def _incompatible(raw: Raw, ops: Any, key: Any, *_: Any) -> bool:
    first, other = (raw.reads(txn, key) for txn in ops)
    return raw.lists and any(a[: len(b)] != b[: len(a)] for a in first for b in other)


def _dirty_update(raw: Raw, ops: Any, key: Any, value: Any, after: Any, _: Any) -> bool:
    """Return whether a committed append follows a failed append in the list.

    All appends between the two must have unknown outcomes.
    """
    failed, done = ops
    if (failed.type, done.type) != ("fail", "ok") or value not in raw.wrote(failed, key):
        return False
    for order in list_orders(raw, key)[0] if after in raw.wrote(done, key) else ():
        if value in order and after in order and order.index(value) < order.index(after):
            between = order[order.index(value) + 1 : order.index(after)]
            writers = [raw.writer.get((key, element)) for element in between]
            return all(writer is None or writer.type == "info" for writer in writers)
    return False


def _internal(raw: Raw, ops: Any, key: Any, *_: Any) -> bool:
    (txn,) = ops
    base: Any = None
    written: list[Any] = []
    for write, thing, nil in raw.acts(txn, key) if txn.type == "ok" else ():
        if write:
            written = [*written, thing] if raw.lists else [thing]
            continue
        if raw.lists and base is None:
            wrong = written and thing[-len(written) :] != tuple(written)
        elif raw.lists:
            wrong = thing != (*base[0], *written) or (not thing and nil != base[1])
        else:
            wrong = thing != (tuple(written) or (base or (thing,))[0])
        if wrong:
            return True
        base, written = (thing, nil), []
    return False


def _future_read(raw: Raw, ops: Any, key: Any, value: Any, *_: Any) -> bool:
    (txn,) = ops
    seen = False
    for write, thing, _nil in raw.acts(txn, key):
        if write and thing == value and seen:
            return True
        seen = seen or (not write and value in thing)
    return False


def _lost_update(raw: Raw, ops: Any, key: Any, value: Any, *_: Any) -> bool | None:
    """Return whether all of `ops` first read the same value of the key, and then wrote the key.

    Returns `None` if one of `ops` wrote that value itself. Only the original Elle counts this as a
    lost update.
    """
    met: set[Any] = set()
    for txn in ops:
        acts = raw.acts(txn, key)
        first = next((i for i, (write, _, _) in enumerate(acts) if not write), len(acts))
        if not any(write for write, _, _ in acts[first:]):
            return False
        met.add(acts[first][1:])
    if len(ops) < 2 or len(met) != 1:
        return False
    (seen,) = met.pop()[:1]
    self_written = not raw.lists and raw.writer.get((key, seen[0])) in ops
    return _prints(raw.lists, seen) == value[0] and (None if self_written else True)


def _prints(is_list: bool, shown: Any) -> str:
    items = [text for text, _ in shown]
    if len(items) > 12:
        items = [*items[:6], f"... {len(items) - 12} more ...", *items[-6:]]
    return f"[{' '.join(items)}]" if is_list else items[0]


def _cyclic_versions(
    raw: Raw, _ops: Any, key: Any, _value: Any, _after: Any, details: Any
) -> bool | None:
    """Return whether each value in the case precedes all others, directly or indirectly.

    Returns `None` if there are too many values, or if the order of transactions decides.
    """
    if set(details["sources"]) - {"initial-state"} - set(raw.promised):
        return False
    promised = promises(raw, key)
    versions = {NIL, *promised[1], *promised[2]}
    if len(versions) > VERSIONS_MAX or "transaction-order" in details["sources"]:
        return None

    def reach(start: Any, step: Callable[[Any, Any], bool]) -> set[Any]:
        values: set[Any] = set()
        todo = [start]
        while todo:
            here = todo.pop()
            new = {version for version in versions - values if step(here, version)}
            values |= new
            todo += new
        return values

    def before(one: Any, other: Any) -> bool:
        return precedes(raw, key, one, other, details["sources"], promised)

    values = details["values"]
    for start in [version for version in versions if version[0] == values[0]]:
        both = reach(start, before) & reach(start, lambda one, other: before(other, one))
        if len(set(values)) > 1 and set(values) <= {text for text, _ in both}:
            return True
    return False


SINGLE: dict[str, Callable[..., bool | None]] = {
    "G1a": _aborted_read,
    "G1b": _intermediate_read,
    "garbage-read": _garbage,
    "duplicate-elements": _duplicate,
    "incompatible-order": _incompatible,
    "dirty-update": _dirty_update,
    "internal": _internal,
    "future-read": _future_read,
    "lost-update": _lost_update,
    "cyclic-versions": _cyclic_versions,
}
