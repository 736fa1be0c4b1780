"""The checks: infer dependencies, find cycles, judge.

A request names the consistency models (and perhaps single anomalies) that must hold. It decides
which orders count (real time, or the order within processes, or neither) and which findings make a
history invalid. The boundary (`not_`, `also_not`) follows from all anomalies. Rules of judging
follow jepsen-io/elle, `txn.clj` at ccdee6f:

* invalid: an anomaly was found that a requested model, or one it implies, forbids;
* unknown: only `empty-transaction-graph` or `cycle-search-timeout` was found, or nothing can be
  inferred from the history;
* valid: otherwise; anomalies that the request does not forbid are not mentioned.
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
"""The maximum number of occurrences of an anomaly to describe; all are counted."""

SEARCH_STEPS_MAX: Final = 4_000_000
MEMBERS_SEARCHED_MAX: Final = 1_000_000
"""In larger components only cycles of two transactions are looked for, which takes no search.
The models that a component refutes are known without a search, too."""

COMPONENTS_COUNTED_MAX: Final = 1000
"""The number of components after which only cycles of new kinds are searched for."""

_REALTIME: Final = frozenset(name for name in CYCLE_TYPES if name.endswith("-realtime"))
_PROCESS: Final = frozenset(name for name in CYCLE_TYPES if name.endswith("-process"))


@dataclass(frozen=True, slots=True)
class ElleResult:
    """The verdict on a history.

    `anomalies` holds explained cases by type. `counts` has the number of occurrences of each type;
    for cycles, this is the number of components (a lower bound above a thousand components). `not_`
    are the weakest consistency models that are refuted, `also_not` the stronger models that fall
    with them. `notes` are observations without influence on the verdict. `present` names every type
    that was found, forbidden or not. `promised` lists the version orders of single registers that
    the requested models were assumed to imply.
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
    """A request, made by `request`. `forbidden` are the anomalies that make a history invalid."""

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
    """A request whose time limit starts now; raises `UsageError` for unknown names."""
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
    """Check transactions of appends and reads over lists.

    Raises `HistoryError` if the history has other transactions, and `UsageError` for unknown names.
    The search for cycles ends after `time_limit_s`, or for one component after `search_steps`. Then
    the refuted models are still right, but fewer cycles may be shown.
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
    """Check transactions of writes and reads over registers.

    The order of a key's versions is not visible in reads. It is inferred from what the caller
    states about single keys: that they are linearizable, or sequentially consistent, or that writes
    follow reads in a transaction (`wfr_keys`), or from the order in which transactions were
    committed (`transaction_order`: index of the invocation -> number). `initial_values` declares
    what keys hold before any write; reads of values never written are then a `garbage-read`, and
    only noted otherwise. With `unknown_writes`, a write whose answer was lost counts like other
    writes if some transaction read it; upstream never counts such writes. Limits and errors as in
    `check_list_append`.
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
    """Check transactions that insert, delete, write, and read by key or by predicate.

    A recorded history declares its keys and initial values by an `init` operation; for bare
    transactions the caller passes `universe`. Limits and errors as in `check_list_append`.
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
    """Whether any answered transaction was invoked after another's `ok` completion."""
    ok = columns.end != NEVER
    answered = columns.start[columns.answered]
    return bool(ok.any() and len(answered) and answered.max() > columns.end[ok].min())


def _empty() -> Case:
    text = "No two transactions depend on each other, so nothing could be checked."
    return Case("empty-transaction-graph", (text,), ())


class _Found:
    """Cases and counts by type, as the checks find them."""

    def __init__(self, columns: Columns, inference: Inference) -> None:
        self.columns = columns
        self.inference = inference
        self.cases: dict[str, list[Case]] = {}
        self.counts = {name: finding.count for name, finding in inference.findings.items()}
        self.unshown: list[tuple[Component, Search, tuple[str, ...]]] = []

    def record(self, type_: str, tell: Callable[[], Case]) -> None:
        """Count a case, and describe it if few cases of this type were described so far."""
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
        """Find the cycles of one component, and record them."""
        search = Search(component, self.inference.preference)
        refuted = search.refuted()
        for model, members in refuted.items():
            self.record(
                existence_type(model), partial(_exists, self.columns, component, model, members)
            )
        # In large histories, more examples of known kinds add no information.
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
        """Find cycles that refute `models` for which only the existence of a cycle is known."""
        for component, search, unshown in self.unshown:
            for model in unshown:
                if model in models:
                    budget = Budget(wanted.search_steps, wanted.deadline_passed)
                    cycle = search.show(model, budget)
                    if cycle is not None:
                        self.record_cycle(component, cycle)


def _exists(columns: Columns, component: Component, model: str, members: int) -> Case:
    text = (
        f"Among {component.members} transactions that depend on each other there is a cycle which "
        f"{friendly(model)} forbids; the smallest part that must hold one has {members}."
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
    """The types to report: forbidden types, except types that other findings already cover."""
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
            f"{counted(total, 'transaction')}: nothing that {asked} forbids",
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
