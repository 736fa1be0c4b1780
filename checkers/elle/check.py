"""Checks transactional isolation: infers dependencies, finds cycles, and gives a verdict.

A request names the consistency models that must hold, and possibly further anomalies that must not
occur. The verdict follows jepsen-io/elle, `txn.clj` at ccdee6f:

* invalid: the history has an anomaly that a requested model, or a model that it implies, forbids;
* unknown: the check found only `empty-transaction-graph` or `cycle-search-timeout`, or nothing can
  be inferred from the history;
* valid: all other histories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from checkers.elle.explain import explain_cycle
from checkers.elle.findings import Case, Inference, Refused
from checkers.elle.infer.append import infer_append
from checkers.elle.infer.columns import NEVER, Columns, Transaction, columns_of
from checkers.elle.infer.predicate import infer_predicates
from checkers.elle.infer.predicate_columns import PredicateColumns, predicate_columns
from checkers.elle.infer.register import RegisterOptions, infer_register
from checkers.elle.infer.shortcuts import pairs, shortened
from checkers.elle.kinds import Budget, Cycle
from checkers.elle.models import (
    CYCLE_TYPES,
    EXISTENCE_MODELS,
    UNKNOWN_TYPES,
    boundary,
    check_names,
    existence_type,
    friendly,
    impossible_models,
    prohibited,
    with_implied,
)
from checkers.elle.search.graph import PROCESS, Component, Graph, GraphBuilder, process_edges
from checkers.elle.search.search import Search
from harness.errors import counted
from harness.ops import History, Verdict

CASES_MAX: Final = 16
"""The maximum number of described occurrences per anomaly; further occurrences are only counted."""

SEARCH_STEPS_MAX: Final = 4_000_000
MEMBERS_SEARCHED_MAX: Final = 1_000_000
"""The maximum size (in transactions) of a component that is searched for long cycles. In larger
components, the check shows only cycles of two transactions, but still knows the refuted models.
"""

COMPONENTS_COUNTED_MAX: Final = 1000
"""The number of components that are searched for all kinds of cycles.

In further components, the search skips kinds of cycles that were already found.
"""

_REALTIME: Final = frozenset(name for name in CYCLE_TYPES if name.endswith("-realtime"))
_PROCESS: Final = frozenset(name for name in CYCLE_TYPES if name.endswith("-process"))


@dataclass(frozen=True, slots=True)
class ElleResult:
    """The verdict on a history, and the anomalies behind it.

    `anomalies` maps each type of anomaly to explained cases, and `counts` maps it to the number of
    occurrences. For cycles, this is the number of components with such a cycle. `not_` lists the
    weakest refuted models, and `also_not` the stronger models that follow. `present` names every
    type of anomaly that occurs, forbidden or not. `promised` lists the options of `RegisterOptions`
    that a requested model implies.
    """

    verdict: Verdict
    reason: str
    anomalies: Mapping[str, tuple[Case, ...]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    not_: tuple[str, ...] = ()
    also_not: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    promised: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """The requested models and the limits of a check, made by `request`.

    `forbidden` has the anomalies that make a history invalid.
    """

    models: tuple[str, ...]
    anomalies: tuple[str, ...]
    deadline_passed: Callable[[], bool]
    search_steps: int
    forbidden: frozenset[str]


def request(
    models: Sequence[str],
    anomalies: Sequence[str],
    *,
    time_limit_s: float,
    search_steps: int = SEARCH_STEPS_MAX,
) -> Request:
    """Make a request whose time limit starts now; raises `UsageError` for unknown names."""
    check_names(models, anomalies)
    deadline = time.monotonic() + time_limit_s
    return Request(
        tuple(models),
        tuple(anomalies),
        lambda: time.monotonic() > deadline,
        search_steps,
        prohibited(models, anomalies),
    )


def check_list_append(
    source: History | Columns | Iterable[Transaction],
    *,
    consistency_models: Sequence[str] = ("strict-serializable",),
    anomalies: Sequence[str] = (),
    time_limit_s: float = 60.0,
    search_steps: int = SEARCH_STEPS_MAX,
) -> ElleResult:
    """Check a history of transactions that append to lists and read lists.

    Raises `HistoryError` if the history has other transactions, and `UsageError` for an unknown
    model or anomaly. The search for cycles ends after `time_limit_s`, and in one component after
    `search_steps`. If the search ends early, the refuted models are still right, but the result may
    show fewer cycles.
    """
    wanted = request(
        consistency_models, anomalies, time_limit_s=time_limit_s, search_steps=search_steps
    )
    return check_columns(columns_of(source, writes_are="append"), infer_append, wanted)


def check_rw_register(
    source: History | Columns | Iterable[Transaction],
    *,
    consistency_models: Sequence[str] = ("strict-serializable",),
    anomalies: Sequence[str] = (),
    linearizable_keys: bool = False,
    sequential_keys: bool = False,
    wfr_keys: bool = False,
    transaction_order: Mapping[int, int] | None = None,
    initial_values: Mapping[Any, Any] | None = None,
    unknown_writes: bool = False,
    time_limit_s: float = 60.0,
    search_steps: int = SEARCH_STEPS_MAX,
) -> ElleResult:
    """Check a history of transactions that write and read registers.

    Reads do not show the order of a key's versions, so the caller says which assumptions hold.
    `linearizable_keys` and `sequential_keys` state that each key is linearizable or sequentially
    consistent. `wfr_keys` states that writes follow reads within a transaction. `transaction_order`
    maps indices of invocations to positions in the order of commits.

    `initial_values` declares the values of keys before any write. Then a read of a value that was
    never written is a `garbage-read`. With `unknown_writes`, a write without an answer counts if
    some transaction read its value. The limits and errors are the same as for `check_list_append`.
    """
    wanted = request(
        consistency_models, anomalies, time_limit_s=time_limit_s, search_steps=search_steps
    )
    options = RegisterOptions(
        linearizable_keys=linearizable_keys,
        sequential_keys=sequential_keys,
        wfr_keys=wfr_keys,
        transaction_order=transaction_order,
        initial_values=initial_values,
        unknown_writes=unknown_writes,
    )
    return check_columns(
        columns_of(source, writes_are="w"),
        lambda columns: infer_register(columns, options),
        wanted,
    )


def check_closed_predicate(
    source: History | PredicateColumns | Iterable[Transaction],
    *,
    universe: Mapping[Any, Any] | None = None,
    consistency_models: Sequence[str] = ("strict-serializable",),
    anomalies: Sequence[str] = (),
    time_limit_s: float = 60.0,
    search_steps: int = SEARCH_STEPS_MAX,
) -> ElleResult:
    """Check a history of transactions that insert, delete, write, and read by key or by predicate.

    A recorded history declares its keys and their initial values by an `init` operation. If
    `source` is not a history, the caller declares them by `universe`. The limits and errors are the
    same as for `check_list_append`.
    """
    wanted = request(
        consistency_models, anomalies, time_limit_s=time_limit_s, search_steps=search_steps
    )
    columns = predicate_columns(source, universe)
    return check_columns(columns, lambda _: infer_predicates(columns), wanted)


def check_columns(
    columns: Columns, infer: Callable[[Columns], Inference], wanted: Request
) -> ElleResult:
    """Check a history that was already converted to columns."""
    try:
        inference = infer(columns)
    except Refused as refused:
        return ElleResult(Verdict.UNKNOWN, str(refused))
    realtime = bool(_REALTIME & wanted.forbidden)
    processes = not realtime and bool(_PROCESS & wanted.forbidden)

    def graph_of(builder: GraphBuilder) -> Graph:
        if processes:
            builder.add(*process_edges(columns), PROCESS)
        return builder.build(realtime=realtime)

    graph = graph_of(inference.builder)
    components = list(graph.components())
    if components and inference.refine is not None:
        members = np.concatenate([component.txns for component in components])
        refined = inference.refine(members)
        if refined is not None:
            graph = graph_of(refined)
            components = list(graph.components())
    results = _Found(columns, inference)
    if not inference.builder.touched and not (realtime and _ordered_in_time(columns)):
        results.record("empty-transaction-graph", _empty)
    for number, component in enumerate(components):
        results.search(component, number, wanted)
    statistics = {
        "transactions": len(columns),
        "edges": len(graph.source),
        "components": len(components),
        "bytes": columns.nbytes + graph.nbytes,
    }
    return _judge(results, wanted, statistics)


def _ordered_in_time(columns: Columns) -> bool:
    ok = columns.end != NEVER
    answered = columns.start[columns.answered]
    return bool(ok.any() and len(answered) and answered.max() > columns.end[ok].min())


def _empty() -> Case:
    text = "No two transactions depend on each other, so nothing could be checked."
    return Case("empty-transaction-graph", (text,), ())


class _Found:
    """The cases and the counts of a history's anomalies, by type of anomaly."""

    def __init__(self, columns: Columns, inference: Inference) -> None:
        self.columns = columns
        self.inference = inference
        self.cases: dict[str, list[Case]] = {}
        self.counts = {name: finding.count for name, finding in inference.findings.items()}
        self.unshown: list[tuple[Component, Search, tuple[str, ...]]] = []

    def record(self, type_: str, tell: Callable[[], Case]) -> None:
        self.counts[type_] = self.counts.get(type_, 0) + 1
        cases = self.cases.setdefault(type_, [])
        if len(cases) < CASES_MAX:
            cases.append(tell())

    def record_cycle(self, component: Component, cycle: Cycle) -> None:
        runs = component.txns[list(cycle.txns)]
        cycle = shortened(cycle, self.columns.start[runs], self.columns.end[runs])
        txns = component.txns[list(cycle.txns)].tolist()
        explain = self.inference.explain
        self.record(cycle.name, lambda: explain_cycle(self.columns, explain, txns, cycle))

    def search(self, component: Component, number: int, wanted: Request) -> None:
        search = Search(component, self.inference.preference)
        refuted = search.refuted()
        for model, members in refuted.items():
            self.record(
                existence_type(model), partial(_exists, self.columns, component, model, members)
            )
        counted = frozenset(self.counts) if number >= COMPONENTS_COUNTED_MAX else frozenset()
        budget = Budget(wanted.search_steps, wanted.deadline_passed)
        cycles: list[Cycle] = []
        unfinished = search.kinds_left(refuted)
        searchable = component.members <= MEMBERS_SEARCHED_MAX
        if searchable:
            cycles, unfinished = search.find_all(refuted, budget, with_implied(counted))
        else:
            txns = component.txns
            cycles = pairs(component, self.columns.start[txns], self.columns.end[txns])
            implied = with_implied(cycle.name for cycle in cycles)
            unfinished = [kind for kind in unfinished if kind not in implied]
        # An unfinished search is reported only if its result could change the verdict.
        unfinished = [kind for kind in unfinished if kind in wanted.forbidden]
        if unfinished:
            self.record("cycle-search-timeout", partial(_unfinished, unfinished, component.members))
            if searchable and not cycles:
                cycles.append(search.any_cycle())
        for cycle in cycles:
            self.record_cycle(component, cycle)
        covered = impossible_models(cycle.name for cycle in cycles)
        unshown = tuple(model for model in refuted if model not in covered)
        if unshown and searchable:
            self.unshown.append((component, search, unshown))

    def show(self, models: frozenset[str], wanted: Request) -> None:
        """Search for cycles that refute `models`, if only the existence of such cycles is known so
        far.
        """
        for component, search, unshown in self.unshown:
            for model in unshown:
                if model in models:
                    budget = Budget(wanted.search_steps, wanted.deadline_passed)
                    cycle = search.show(model, budget)
                    if cycle is not None:
                        self.record_cycle(component, cycle)


def _exists(columns: Columns, component: Component, model: str, members: int) -> Case:
    text = (
        f"Among {component.members} transactions that depend on each other, there is a cycle "
        f"that {friendly(model)} forbids; the smallest part that must contain such a cycle has "
        f"{members}."
    )
    operations = tuple(columns.index[component.txns[:CASES_MAX]].tolist())
    return Case(existence_type(model), (text,), operations, {"transactions": members})


def _unfinished(kinds: list[str], members: int) -> Case:
    text = (
        f"The search in a component of {members} transactions ended before it could tell whether "
        f"there is a {', '.join(kinds)}; raise the limit on steps or time to know."
    )
    return Case("cycle-search-timeout", (text,), (), {"kinds": kinds, "transactions": members})


def _shown(found: _Found, wanted: Request) -> set[str]:
    forbidden = wanted.forbidden
    names = {name for name in found.counts if name in forbidden or name in UNKNOWN_TYPES}
    concrete = {name for name in names if not name.endswith("-cycle-exists")}
    covered = impossible_models(concrete)
    return names - {existence_type(model) for model in EXISTENCE_MODELS if model in covered}


def _judge(results: _Found, wanted: Request, statistics: Mapping[str, int]) -> ElleResult:
    forbidden_names = _shown(results, wanted)
    bare = frozenset(
        model for model in EXISTENCE_MODELS if existence_type(model) in forbidden_names
    )
    if bare:
        results.show(bare, wanted)
        forbidden_names = _shown(results, wanted)
    asked = ", ".join((*wanted.models, *(f"no {name}" for name in wanted.anomalies)))
    notes = results.inference.notes
    if not forbidden_names:
        total = statistics["transactions"]
        return ElleResult(
            Verdict.VALID,
            f"{counted(total, 'transaction')}: no anomaly that {asked} forbids",
            notes=notes,
            statistics=statistics,
            present=frozenset(results.counts),
        )
    for name in forbidden_names & set(results.inference.findings):
        finding = results.inference.findings[name]
        results.cases[name] = [finding.explain(i) for i in range(min(finding.count, CASES_MAX))]
    edge = boundary(results.counts)
    names = sorted(forbidden_names)
    reason = ", ".join(names)
    verdict = Verdict.INVALID if set(results.counts) & wanted.forbidden else Verdict.UNKNOWN
    if verdict is Verdict.UNKNOWN:
        reason = f"{asked} could not be checked: {reason}"
    elif edge.not_:
        reason += f": not {', not '.join(edge.not_)}"
    return ElleResult(
        verdict,
        reason,
        {name: tuple(results.cases[name]) for name in names},
        {name: results.counts[name] for name in names},
        edge.not_,
        edge.also_not,
        notes,
        statistics,
        frozenset(results.counts),
    )
