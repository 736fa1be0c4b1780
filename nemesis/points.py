"""The nemesis `at-points`, whose faults strike at points of the target's code.

A target announces when it reaches certain points of its code (`Env.point`), for example when it
casts a vote, appends an entry or installs a snapshot. Faults at planned times rarely hit the
milliseconds after such a point, and many defects need two faults at related points. So most runs
draw one of the target's groups of points, and strike at these points again and again. (`BUGGIFY` in
FoundationDB's `flow/include/flow/Buggify.h` also arms only a few sites per run.) Some faults strike
at a planned time instead, because otherwise a run might have no lost leaders and no elections.

Some defects of consensus need several faults in a certain order, which independent draws hardly
ever produce. So half of the runs follow a *plot* (`PLOTS`), if the target has the plot's points. A
plot repeats the same few faults in every round, aimed at a state that consensus must rule out.

An argument of each fault describes the fault in words. So a case is readable by itself, and can be
replayed even if the target's points have since changed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from harness.case import Fault, Trigger
from harness.cluster import Capability, NodeSpec
from harness.errors import UsageError
from harness.faults.nemesis_from_text import AimedNemesis
from harness.faults.schedules import FAULTS_MAX
from harness.nodes.faults import Aim
from harness.ops import NS_PER_MS
from harness.plugins import NEMESIS_API_VERSION, Nemesis, Scene, Target, override

WORDS: Final = "fault"
"""The name of the fault's argument that describes the fault in words."""
AT_A_POINT: Final = (
    *("kill it",) * 4, *("power-cut it",) * 2, "power-cut all", "pause it",
    *("cut it from one@members",) * 2, "cut it from members", "cut it from others",
    "cut it to members", "cut members to it", *("disk it delay=50ms",) * 2,
)  # fmt: skip
"""Faults that strike at points. A fault that is listed several times is drawn more often."""
PROVOKING: Final = ("kill leader", "pause leader", "cut leader from members", "restart leader")
"""Faults at planned times, which make leaders change."""
PROVOKE_ONE_IN: Final = (4, 4, 12)
"""A run draws one of these numbers. If it draws 4, every fourth fault is from `PROVOKING`.

Some runs draw 12, so that leaders change rarely. A new leader asks for all reports, so only then
does a lost report stay lost.
"""
FAULTS_PER_INTERVAL: Final = 3
ALL_GROUPS_ONE_IN: Final = 4
NTH: Final = (1, 1, 1, 2, 3)
AFTER_MS: Final = (0, 0, 1, 3, 10, 50)
LASTS_MS: Final = (50, 50, 300, 1000, 2500)
"""The possible durations of a fault, some shorter and some longer than an election."""
PLOT_ONE_IN: Final = 2
"""A run follows a plot with the probability 1 / `PLOT_ONE_IN`, if the target has its points."""
LENGTH_PERCENT: Final = (85, 115)
T = TypeVar("T")


class Act(NamedTuple):
    """A fault of a plot: its words, its start within the round, and its duration.

    In the words, `{voted}` means the target's first point of the kind `voted`, with its fields.
    `{any_voted}` means the kind alone, which matches in every group of replicas.
    """

    words: str
    at_ms: int
    for_ms: int


class Plot(NamedTuple):
    """A plot: the faults of each round, and the length of a round."""

    round_ms: int
    acts: tuple[Act, ...]


PLOTS: Final = (
    # The voters of a new leader restart. Then a member that does not know the leader's term becomes
    # a candidate in the same term.
    Plot(
        8000,
        (
            Act("cut leader from members", 0, 3000),
            Act("cut it from members when event {leader}", 0, 3000),
            Act("kill it when event {voted} after=1ms", 0, 1000),
        ),
    ),
    # All members lose power when the leader has counted an entry as committed that is durable on
    # only a few of them.
    Plot(
        4000,
        (
            Act("disk it delay=50ms when event {appended}", 0, 900),
            Act("cut it from one@members when event {appended}", 0, 900),
            Act("disk it delay=50ms when event {appended}", 1000, 900),
            Act("cut it from one@members when event {appended}", 1000, 900),
            Act("power-cut all when event {committed} nth=3 after=5ms", 0, 300),
        ),
    ),
    # Leaders die before slow followers answer them, so clients resend requests that the log may
    # already contain.
    Plot(
        6000,
        (
            Act("disk all delay=50ms", 0, 4000),
            Act("kill it when event {any_appended} after=10ms", 0, 1000),
            Act("kill it when event {any_appended} after=10ms", 3000, 1000),
        ),
    ),
    # A leader is cut off with uncommitted entries, the next leader dies with its first entry, and
    # the old leader returns and dies as soon as it has committed something (figure 8 of "In Search
    # of an Understandable Consensus Algorithm", Ongaro and Ousterhout 2014).
    Plot(
        12_000,
        (
            Act("cut leader from members", 0, 3000),
            Act("cut it from members when event {leader}", 0, 1500),
            Act("kill it when event {leader} after=20ms", 0, 5500),
            Act("kill it when event {committed} after=1ms", 3100, 4500),
        ),
    ),
)


class AtPoints(Nemesis, suits_all=False):
    """Faults that strike when a node reaches a point of the code; the seed draws the points."""

    api_version = NEMESIS_API_VERSION
    name = "at-points"
    doc = "faults at drawn points of the target's code, such as right after a vote"

    def __init__(self, points: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
        """Create a nemesis that strikes at these `points` of a target (`Target.points`)."""
        self._points = points
        every = [*(f"{words} when event x" for words in AT_A_POINT), *PROVOKING]
        self.requires: frozenset[Capability] = frozenset().union(
            *(_fault_of(words).requires for words in every)
        )

    @override
    def for_target(self, target: Target) -> Nemesis:
        return AtPoints(target.points)

    @override
    def check_target(self, specs: Mapping[str, NodeSpec], target: Target) -> None:
        del specs
        if not target.points:
            raise UsageError(
                f"the target {target.name!r} declares no points (`Target.points`), so the nemesis "
                f"{self.name!r} has nothing to strike at; choose another nemesis"
            )

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """Plan `FAULTS_PER_INTERVAL` faults per interval; `duration_ns` is not used."""
        del duration_ns
        if not self._points:
            return ()
        groups = list(self._points.values())
        points = [point for group in groups for point in group]
        if rng.randrange(ALL_GROUPS_ONE_IN):
            points = list(_one(rng, groups))
        provoke_one_in = _one(rng, PROVOKE_ONE_IN)
        step_ns = max(1, interval_ns // FAULTS_PER_INTERVAL)
        faults = []
        for number in range(min(max(1, horizon_ns // step_ns), FAULTS_MAX)):
            words = _at_one_of(points, rng) if number % provoke_one_in else _one(rng, PROVOKING)
            at_ns = step_ns * number + rng.randrange(step_ns)
            duration_ns = _one(rng, LASTS_MS) * NS_PER_MS
            faults.append(self._fault(number, words, rng, at_ns=at_ns, duration_ns=duration_ns))
        plots = _plots_at(self._points)
        if plots and not rng.randrange(PLOT_ONE_IN):
            return self._follow(_one(rng, plots), rng, horizon_ns)
        return faults

    def _follow(self, plot: Plot, rng: random.Random, horizon_ns: int) -> Sequence[Fault]:
        """Plan the faults of a plot in every round; the last one may extend beyond the horizon."""
        count = max(1, horizon_ns // (plot.round_ms * NS_PER_MS))
        rounds = range(min(count, FAULTS_MAX // len(plot.acts)))
        faults = []
        for number, (at_round, act) in enumerate(itertools.product(rounds, plot.acts)):
            at_ns = (plot.round_ms * at_round + act.at_ms) * NS_PER_MS
            duration_ns = act.for_ms * NS_PER_MS * rng.randrange(*LENGTH_PERCENT) // 100
            faults.append(self._fault(number, act.words, rng, at_ns=at_ns, duration_ns=duration_ns))
        return sorted(faults, key=lambda fault: fault.at_ns)

    def _fault(
        self, number: int, words: str, rng: random.Random, *, at_ns: int, duration_ns: int
    ) -> Fault:
        return Fault(
            id=f"{self.name}-{number + 1}",
            nemesis=self.name,
            at_ns=at_ns,
            duration_ns=duration_ns,
            args={WORDS: words, **_fault_of(words).draw_args(rng)},
        )

    @override
    def check_args(self, args: Mapping[str, Any]) -> None:
        words = args.get(WORDS)
        if not isinstance(words, str):
            raise UsageError(
                f"the argument {WORDS!r} of the nemesis {self.name!r} is {words!r}; write a fault "
                "in words, such as 'kill it when event voted'"
            )
        _fault_of(words).check_args({name: args[name] for name in args if name != WORDS})

    @override
    def needs_leader(self, fault: Fault) -> bool | str:
        return _fault_of(fault.args[WORDS]).needs_leader(fault)

    @override
    def trigger_of(self, fault: Fault) -> Trigger | None:
        return _fault_of(fault.args[WORDS]).trigger_of(fault)

    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """Return the aim that the fault's words describe."""
        return _fault_of(fault.args[WORDS]).aim(scene, fault)


@functools.lru_cache(maxsize=1000)
def _fault_of(words: str) -> AimedNemesis:
    return AimedNemesis.of_text(words)


def _at_one_of(points: Sequence[str], rng: random.Random) -> str:
    words = f"{_one(rng, AT_A_POINT)} when event {_one(rng, points)}"
    nth, after_ms = _one(rng, NTH), _one(rng, AFTER_MS)
    if nth > 1:
        words += f" nth={nth}"
    return words + (f" after={after_ms}ms" if after_ms else "")


def _plots_at(points: Mapping[str, Sequence[str]]) -> list[Plot]:
    """Return the plots whose points the target has. Their words name the target's own points."""
    by_kind: dict[str, str] = {}
    for point in itertools.chain.from_iterable(points.values()):
        kind = point.split()[0]
        by_kind.setdefault(kind, point)
        by_kind[f"any_{kind}"] = kind
    plots = []
    for plot in PLOTS:
        with contextlib.suppress(KeyError):  # the target lacks a point of the plot
            named = [act._replace(words=act.words.format_map(by_kind)) for act in plot.acts]
            plots.append(plot._replace(acts=tuple(named)))
    return plots


def _one(rng: random.Random, choices: Sequence[T]) -> T:
    return choices[rng.randrange(len(choices))]
