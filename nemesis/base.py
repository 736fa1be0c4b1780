"""What all periodic nemeses share: the version of the protocol and the shape of a plan."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.case import Fault
from harness.cluster import Bite, Capability, Cluster
from harness.errors import UsageError
from harness.plugins import API_VERSION, Injection
from nemesis.schedule import plan_periodic

__all__ = ["MISSED", "LinkNemesis", "PeriodicNemesis", "draw_node", "drawn_node"]

ARGS_DRAWS: Final = 32
MISSED = Injection(targets=(), note="missed: nobody leads at this moment")


class PeriodicNemesis:
    """A nemesis with one fault an interval. Subclasses name themselves, inject and heal."""

    api_version: ClassVar[int] = API_VERSION
    name: ClassVar[str]
    doc: ClassVar[str]
    kind: ClassVar[str] = "other"
    needs_leader: ClassVar[bool] = False
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """What the plan decides beforehand; must not depend on who leads."""
        del rng
        return {}

    def check_args(self, args: Mapping[str, Any]) -> None:
        """Refuse what `draw_args` could never have drawn: a case may be written by hand.

        Names and types are those of some draws; a nemesis whose draws do not show them all, or
        whose values have ranges, overrides this. Raises `UsageError`.
        """
        draws = [self.draw_args(random.Random(seed)) for seed in range(ARGS_DRAWS)]
        kinds: dict[str, set[type]] = {}
        for draw in draws:
            for name, value in draw.items():
                kinds.setdefault(name, set()).add(type(value))
        for name, value in args.items():
            if name not in kinds:
                known = ", ".join(sorted(kinds)) or "none"
                raise UsageError(
                    f"the nemesis {self.name!r} knows no argument {name!r}; it knows: {known}"
                )
            if type(value) not in kinds[name]:
                wanted = " or ".join(sorted(kind.__name__ for kind in kinds[name]))
                raise UsageError(
                    f"the argument {name!r} of the nemesis {self.name!r} is {value!r}; "
                    f"it takes a value of type {wanted}"
                )

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """One fault an interval (see `nemesis.schedule`)."""
        return plan_periodic(
            self.name,
            rng,
            horizon_ns=horizon_ns,
            interval_ns=interval_ns,
            duration_ns=duration_ns,
            draw_args=self.draw_args,
        )


class LinkNemesis(PeriodicNemesis):
    """A nemesis whose faults are cuts: healing sums up what they swallowed."""

    kind: ClassVar[str] = "cut"
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PARTITION})

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Undo every cut; the bite is unmeasured if any of them is."""
        bites = [await cluster.heal(fault) for fault in injection.fault_ids]
        counts = [bite.count for bite in bites]
        unit = bites[0].unit if bites else "frames"
        measured = [count for count in counts if count is not None]
        return Bite(sum(measured) if len(measured) == len(counts) else None, unit)


def draw_node(rng: random.Random) -> dict[str, Any]:
    """The seed of the draw of a node: the nodes are known only when the fault happens."""
    return {"draw": rng.randrange(2**31)}


def drawn_node(names: Sequence[str], fault: Fault) -> str:
    """The node of `names`, of which there must be one, that `draw_node` chose."""
    return names[int(fault.args.get("draw", 0)) % len(names)]
