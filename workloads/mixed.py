"""DDL, operations on rows and membership changes at once, on the same catalog.

The operations come from `ddl`, `rows` and `members`, with the weights `--ddl`, `--rows` and
`--members`. DDL uses the tables `t0`, `t1`, ... Rows are in the tables `r0`, `r1`, ... and `bank`,
which are never renamed or deleted, and whose replicas move. The checkers of rows and of membership
judge only their own operations. The checkers of the catalog also judge the creates of tables for
rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.generator import Context, Emit, Generator, Step, lift, weighted
from harness.generator.core import Around
from harness.ops import Op, OpType
from harness.plugins import API_VERSION, Option, Request, Workload, override
from harness.vocabularies.ddl import Create
from harness.vocabularies.members import ListMasters
from workloads.ddl import DdlWorkload
from workloads.members import LEAST_MASTERS, members_need, members_ops
from workloads.rows import RowsWorkload, tables_of

_DDL, _ROWS = DdlWorkload(), RowsWorkload()
_OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option for option in (*_ROWS.options, *_DDL.options)
}
# always 0, since the lists that these options cause would crowd out other operations
_SHARED: Final = ("moves",)


class _Part(Around, frozen=True):
    """One part of the mixture. Its nonces have a prefix, and it ignores other parts' creates."""

    prefix: str
    tables: tuple[str, ...]

    def emitted(self, ctx: Context, step: Emit) -> Step:  # noqa: ARG002  the protocol's shape
        """Prefix the nonce of an operation, so that no other part uses it."""
        draft, value = step.draft, step.draft.value
        if isinstance(value, dict) and "nonce" in value:
            draft = draft.replace(value={**value, "nonce": f"{self.prefix}{value['nonce']}"})
        return Emit(draft, self.around(step.next))

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f == Create.f and event.type is OpType.INVOKE:
            value = event.value if isinstance(event.value, dict) else {}
            if value.get("name") not in self.tables:
                return self
        return super().update(ctx, event)


def _share(name: str, default: int) -> Option:
    return Option(name, default, f"the weight of operations of {name}", within=(0, 1000))


class MixedWorkload(Workload, usual={"rate": 120.0, "concurrency": 20}):
    """DDL, rows and membership changes at once."""

    api_version = API_VERSION
    name = "mixed"
    doc = "DDL, rows and membership at once"
    vocabulary = "mixed"
    options = (
        *(option for name, option in _OPTIONS.items() if name not in _SHARED),
        LEAST_MASTERS,
        _share("ddl", 40),
        _share("rows", 58),
        _share("members", 2),
        Option("moved", 50, "percentage of changes that move a replica", (0, 100)),
    )
    checkers = (
        *_DDL.checkers,
        *(name for name in _ROWS.checkers if name not in _DDL.checkers),
        "members",
    )

    @override
    def needs(
        self, options: Mapping[str, Any], target_options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Require a free server to which replicas can move, or a spare master that can join."""
        return members_need(options, target_options, moves=bool(options["moved"]))

    @override
    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """Draw the options of `ddl` and of `rows`; tablets are drawn once for both."""
        drawn = {**_DDL.draw_options(rng, {}), **_ROWS.draw_options(rng, {})}
        return {name: value for name, value in drawn.items() if name not in _SHARED} | {**given}

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        ddl = _DDL.generator(self._of_ddl(case))
        tables = tables_of(options)
        parts = [(int(options["ddl"]), _Part(lift(ddl), "d", ()))]
        if int(options["rows"]):
            parts.append((int(options["rows"]), _Part(lift(_ROWS.generator(case)), "r", tables)))
        moved = tables if int(options["rows"]) else ("t0", "t1", "t2", "t3")
        members = lift(members_ops(case, moved if int(options["moved"]) else (), options))
        return weighted([*parts, (int(options["members"]), members)])

    def _of_ddl(self, case: Case) -> Case:
        options = {**case.workload_options, "moves": 0}
        return msgspec.structs.replace(case, workload_options=options)

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Return the probe of `ddl`, followed by the probe of `rows` on a separate table."""
        requests = list(_DDL.probe(self._of_ddl(case), attempt, retry))
        if int(case.workload_options["rows"]):
            requests += map(_renamed, _ROWS.probe(case, attempt, retry))
        return requests

    def final(self, case: Case) -> Sequence[Request]:
        requests = list(_DDL.final(self._of_ddl(case)))
        if int(case.workload_options["rows"]):
            requests += _ROWS.final(case)
        return [*requests, Request.of(ListMasters())]


def _renamed(request: Request) -> Request:
    """Give a request of the rows probe a name and a nonce that no DDL probe uses."""
    value = dict(request.value)
    for field in ("name", "table", "nonce"):
        if field in value:
            value[field] = f"r-{value[field]}"
    return Request(request.f, value)


def _given(**defaults: int) -> tuple[Option, ...]:
    return tuple(
        Option(option.name, defaults[option.name], option.help, option.within)
        if option.name in defaults
        else option
        for option in MixedWorkload.options
    )


class MembersWorkload(MixedWorkload):
    """DDL while masters join and leave."""

    name = "members"
    doc = "DDL while masters are added and removed"
    options = _given(rows=0, ddl=95, members=5, moved=0)
    checkers = (*_DDL.checkers, "members")


class MoveWorkload(MixedWorkload):
    """Rows while their replicas move."""

    name = "move"
    doc = "rows while replicas move between tablet servers"
    options = _given(rows=90, ddl=6, members=4, moved=100)
