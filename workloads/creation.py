"""Creates the tables that must exist before other operations begin.

A create is repeated, as a new operation, until its table is known to exist. A generator that calls
`after_create` has three fields: `missing`, the tables to create; `creating`, the process and table
of each create in progress; and `begun`, whether all tables have been known to exist.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar

from harness.case import Case
from harness.errors import UsageError
from harness.ops import Op, OpType
from harness.plugins import Option
from harness.vocabularies.ddl import Create

Ops = TypeVar("Ops")
REPLICAS: Final = Option("replicas", 3, "replicas of each tablet")
UNPLACEABLE: Final = Option(
    "unplaceable",
    0,
    "percentage of creates that ask for more replicas than there are tablet servers",
    within=(0, 100),
)
REPLICAS_MAX: Final = 7


def new_table(name: str, nonce: str, partitions: int, replicas: int) -> Create:
    """Return a create of a table with two columns."""
    return Create(name, nonce, ["v0", "v1"], partitions, replicas)


def replicas_of(case: Case) -> int:
    """Return the option `--replicas`. Raises `UsageError` for an impossible number."""
    replicas = int(case.workload_options["replicas"])
    if replicas not in {1, 3, 5, 7}:
        raise UsageError(
            f"--replicas is {replicas}; it must be 1, 3, 5 or 7, since a majority decides"
        )
    tservers = case.target_options.get("tservers")
    if isinstance(tservers, int) and replicas > tservers:
        raise UsageError(
            f"--replicas is {replicas}, but there are only {tservers} tablet servers to hold them; "
            f"lower --replicas, or give --tservers {replicas}"
        )
    return replicas


def too_many_replicas(case: Case) -> int:
    """Return the smallest odd number of replicas that exceeds the number of tablet servers.

    Raises `UsageError` if no table may have that number of replicas.
    """
    tservers = case.target_options.get("tservers")
    many = 0 if not isinstance(tservers, int) else tservers + 1 + tservers % 2
    if not 0 < many <= REPLICAS_MAX:
        raise UsageError(
            f"--unplaceable {case.workload_options['unplaceable']} needs fewer than {REPLICAS_MAX} "
            f"tablet servers, because no table may have more than {REPLICAS_MAX} replicas; "
            f"--tservers is {tservers}"
        )
    return many


def after_create(ops: Ops, event: Op, table: Any) -> Ops:
    """Update the generator `ops` after the invocation or completion of a create of `table`.

    `table` is the generator's own identifier of the table, as in `missing`.
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
