"""Derives the order of one key's versions directly from the recorded transactions.

For a *list*, the order is its longest read. An append that no read shows comes last.

For a *register*, nil or a value that was never written comes first. Promises about keys order the
other versions. By `wfr-keys`, a version that a transaction read comes before the version that it
wrote. By `sequential-keys`, a version that a process left behind comes before a version that it
found later. By `linearizable-keys`, this holds for any two processes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from checkers.elle.recorded import NIL, Raw, identity

ANYBODY = "anybody"


def list_orders(raw: Raw, key: Any) -> tuple[list[Any], list[Any]]:
    """Return the longest reads of `key`, and the reads that contradict the first longest read.

    The longest reads are returned without repeated elements.
    """
    every = [
        list(value or ())
        for txn in raw.on.get(key, ())
        for f, name, value in txn.mops
        if txn.type == "ok" and f in ("r", ":r") and identity(name) == key
    ]
    longest: list[Any] = []
    for seen in every:
        if len(seen) == max(map(len, every)) and seen not in longest:
            longest.append(seen)
    strays = [seen for seen in every if seen != longest[0][: len(seen)]]
    return [tuple(dict.fromkeys(map(identity, seen))) for seen in longest] or [()], strays


def next_in_list(raw: Raw, key: Any, value: Any, after: Any, orders: Any) -> bool | None:
    """Return whether `after` directly follows `value` in the order of `key`; `None` if undecided.

    If `value` is nil, `after` must be the first element. `orders` has the orders of each key that
    agree with all steps of the cycle so far. It is updated.
    """
    longest, strays = list_orders(raw, key)

    def fits(order: Any) -> bool:
        chain = (NIL, *order)
        if after in chain:
            return bool(chain[chain.index(after) - 1] == value)
        return bool(chain[-1] == value)

    kept = [order for order in orders.get(key, longest) if fits(order)]
    unseen = not any(after in order for order in kept)
    if kept and unseen and any(after in map(identity, stray) for stray in strays):
        return None
    if kept:
        orders[key] = kept
    return bool(kept)


def promises(raw: Raw, key: Any) -> tuple[set[Any], dict[Any, Any], dict[Any, Any]]:
    """Return three collections about a register, from which its promised order follows.

    1. The pairs (version read, version written) of single transactions.
    2. For each version, the earliest end of a transaction that left the version behind.
    3. For each version, the latest call of a transaction that found the version.

    Ends and calls are listed per process, and for all processes together under `ANYBODY`.
    """
    over: set[Any] = set()
    left: dict[Any, Any] = {}
    met: dict[Any, Any] = {}
    for txn in raw.on.get(key, ()):
        acts, wrote = raw.acts(txn, key), raw.wrote(txn, key)
        read = acts[0][1][0] if acts and not acts[0][0] else None
        if read and wrote:
            over.add((read, wrote[-1]))
        version = wrote[-1] if wrote and read in (None, NIL) else read
        last = wrote[-1] if wrote else read
        for who in (ANYBODY, ("process", txn.process)):
            if last:
                ends = left.setdefault(last, {})
                ends[who] = min(txn.end, ends.get(who, txn.end))
            if version:
                calls = met.setdefault(version, {})
                calls[who] = max(txn.call, calls.get(who, txn.call))
    return over, left, met


def precedes(
    raw: Raw, key: Any, value: Any, after: Any, promised: Collection[str], known: Any = None
) -> bool:
    """Return whether version `value` of a register precedes version `after`, by `promised`.

    `promised` names the promises that hold. `known` is the result of `promises`, if already
    computed.
    """
    if value == NIL or (key, value) not in raw.writer:
        return (key, after) in raw.writer
    over, left, met = known or promises(raw, key)
    if "wfr-keys" in promised and (value, after) in over:
        return True
    sources = {True: "linearizable-keys", False: "sequential-keys"}
    return value != after and any(
        who in met.get(after, {}) and end < met[after][who]
        for who, end in left.get(value, {}).items()
        if sources[who == ANYBODY] in promised
    )
