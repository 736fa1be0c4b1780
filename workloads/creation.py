"""Tables that must be there before anything else is asked for.

A generator has three fields for it: `missing`, tables to be created, `creating`, those whose create
is under way, by process, and `begun`, whether each was known to be there once. A create whose table
is not known to be there is asked for again, visibly.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from harness.ops import Op, OpType

Ops = TypeVar("Ops")


def after_create(ops: Ops, event: Op, table: Any) -> Ops:
    """The generator `ops` after the invocation or the end of a create; `table` is what it calls the
    one that an invocation names, as in `missing`.
    """
    state: Any = ops
    found: Ops
    if event.type is OpType.INVOKE:
        found = dataclasses.replace(state, creating=(*state.creating, (event.process, table)))
        return found
    ended = dict(state.creating).get(event.process)
    if ended is None:
        return ops
    creating = tuple(pair for pair in state.creating if pair[0] != event.process)
    value = event.value if isinstance(event.value, dict) else {}
    there = event.type is OpType.OK or value.get("result") == "exists"
    missing = state.missing if there else (*state.missing, ended)
    begun = state.begun or not (creating or missing)
    found = dataclasses.replace(state, creating=creating, missing=missing, begun=begun)
    return found
