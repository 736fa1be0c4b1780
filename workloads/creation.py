"""Tables that must exist before other operations begin.

Such a generator has three fields: `missing`, the tables to create; `creating`, the process and
table of each create in progress; and `begun`, whether all tables were known to exist at some time.
A create is visibly repeated until its table is known to exist.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from harness.ops import Op, OpType

Ops = TypeVar("Ops")


def after_create(ops: Ops, event: Op, table: Any) -> Ops:
    """The generator `ops` after the invocation or completion of a create of `table`.

    `table` is the generator's own name for the table, as in `missing`.
    """
    state: Any = ops
    after: Ops
    if event.type is OpType.INVOKE:
        after = dataclasses.replace(state, creating=(*state.creating, (event.process, table)))
        return after
    ended = dict(state.creating).get(event.process)
    if ended is None:
        return ops
    creating = tuple(pair for pair in state.creating if pair[0] != event.process)
    value = event.value if isinstance(event.value, dict) else {}
    there = event.type is OpType.OK or value.get("result") == "exists"
    missing = state.missing if there else (*state.missing, ended)
    begun = state.begun or not (creating or missing)
    after = dataclasses.replace(state, creating=creating, missing=missing, begun=begun)
    return after
