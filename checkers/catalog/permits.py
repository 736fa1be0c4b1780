"""Judges a catalog history under the permits of its profile (`harness.permits`).

A permit names a deviation from linearizability that the profile accepts. It counts only if no order
explains the history without it.

* `stale-read`: the answer need not show a change that another node acknowledged in a later term.
* `torn-list`: a list may read each name at a different moment. It may leave out a name that a
  rename may have changed during the list.
* `name-gap`: "not found" proves nothing while a table with that name may be renamed or deleted.
* `dirty-create`: a create may show its table and occupy its name from its call on, even if the
  create then fails.
* `ddl-twice`: a change that was sent more than once may take effect twice, at any later time.
* `lost-after-power-cut`: after each power cut the catalog may fall back to an earlier state, but
  loses no acknowledged change that was invoked after the cut.

The verdict is exact, unless the search reaches its limit. Each permit is tried alone before all
permits together, so that an anomaly that one permit explains is not attributed to two.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from msgspec.structs import replace as replace_result

from checkers.catalog.by_term import order_by_term
from checkers.catalog.dead_ends import DeadEnds
from checkers.catalog.history import CatalogHistory, catalog_history
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.types import (
    Answer,
    CatalogOperation,
    Create,
    Delete,
    Get,
    ListTables,
    Look,
    Rename,
    is_plain_list,
)
from checkers.catalog.sentences import sentence
from checkers.linearizability import UNKNOWN, Operation
from checkers.linearizability.partial import Fact, PartialOutcome, find_relaxed_order, states_along
from checkers.linearizability.partial_search import STEPS_MAX
from checkers.verdict.search import Relaxed, under_permits
from harness.ops import CheckResult, History, OpType
from harness.permits import (
    DDL_TWICE,
    DIRTY_CREATE,
    LOST_AFTER_POWER_CUT,
    NAME_GAP,
    STALE_READ,
    TORN_LIST,
    Permit,
    permits_of,
)
from harness.timeline import power_cuts

KNOWN: Final = (STALE_READ, TORN_LIST, NAME_GAP, DIRTY_CREATE, DDL_TWICE, LOST_AFTER_POWER_CUT)
ALONE_SHARE: Final = 0.15
"""The share of the remaining time for trials of single permits, before all are tried together."""
ALONE_STEPS_MAX: Final = STEPS_MAX // 16
"""The maximum number of steps of each trial of a single permit.

An order is mostly found soon or not at all. All permits together then have enough time.
"""
Span = tuple[float, float]
"""The call and the return of an operation, as indices of ops."""


def under_permits_of(history: History, strict: CheckResult, end_s: float) -> CheckResult:
    """Return the invalid result `strict`, revised under the permits of the history."""
    permits = permits_of(history)
    relaxed = judge_permitted(history, permits, end_s=end_s)
    stuck = ""
    if relaxed is not None:
        strict = replace_result(strict, details={**strict.details, "permit_steps": relaxed.steps})
        pair = next((p for p in history.pairs if p.invoke.index == relaxed.stuck), None)
        stuck = "" if pair is None else f": {sentence(pair)}"
    return under_permits(strict, relaxed, permits, sorted(permits), stuck)


def judge_permitted(
    history: History, permits: Mapping[str, Permit], *, end_s: float
) -> Relaxed | None:
    """Search for an order under the permits, for a history that has no order without them.

    Returns `None` if no permit is about the order of operations. `end_s` is the deadline on the
    monotonic clock.
    """
    cuts = power_cuts(history)
    names = [name for name in KNOWN if name in permits and (name != LOST_AFTER_POWER_CUT or cuts)]
    if not names:
        return None
    if LOST_AFTER_POWER_CUT in names:
        before = [name for name in names if name != LOST_AFTER_POWER_CUT]
        left_s = max(0.0, end_s - time.monotonic())
        relaxed = _History(until(history, cuts[0].index), frozenset(before)).judge(
            time.monotonic() + ALONE_SHARE * left_s
        )
        if relaxed.counts is None and relaxed.exhausted:
            return relaxed
    trials = [frozenset((name,)) for name in names] if len(names) > 1 else []
    trials.append(frozenset(names))
    relaxed = Relaxed(None)
    for number, chosen in enumerate(trials):
        last = number == len(trials) - 1
        left_s = max(0.0, end_s - time.monotonic())
        until_s = time.monotonic() + (left_s if last else ALONE_SHARE * left_s)
        steps_max = STEPS_MAX if last else ALONE_STEPS_MAX
        relaxed = _History(history, chosen).judge(until_s, steps_max)
        if relaxed.counts is not None:
            break
    return relaxed


def until(history: History, end: int) -> History:
    """Return the ops before index `end`. Operations that are open there get unknown outcomes."""
    return History(op for op in history if op.index < end)


def spans_by_name(operations: Sequence[CatalogOperation], *kinds: type) -> dict[str, list[Span]]:
    """Map each table name to the spans in which changes of this name may be under way.

    `kinds` are the kinds of changes to include.
    """
    spans: dict[str, list[Span]] = {}
    for operation in operations:
        change = operation.input
        refused = operation.said is not UNKNOWN and operation.said.result != "ok"
        if not isinstance(change, kinds) or refused:
            continue
        end = float("inf") if operation.return_time is None else operation.return_time
        for name in {change.name, getattr(change, "new_name", change.name)}:  # type: ignore[union-attr]
            spans.setdefault(name, []).append((operation.call, end))
    return spans


def creates_by_name(history: History) -> dict[str, list[tuple[str, Span]]]:
    """Map each name to its creates, as (nonce, span in which the create may be under way).

    Creates that failed are included.
    """
    creates: dict[str, list[tuple[str, Span]]] = {}
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        if call.f == "create" and isinstance(call.value, dict):
            lost = done is None or done.type is OpType.INFO
            end = float("inf") if lost else float(done.index)  # type: ignore[union-attr]
            nonce = str(call.value.get("nonce") or f"op {call.index}")
            creates.setdefault(str(call.value.get("name")), []).append((nonce, (call.index, end)))
    return creates


def overlaps(spans: Sequence[Span], operation: CatalogOperation) -> bool:
    """Whether one of the spans overlaps the span of `operation`, an operation that returned."""
    end = operation.return_time
    return any(begin < (end or 0) and over > operation.call for begin, over in spans)


class _History:
    """The search for an order of one history under some permits."""

    def __init__(self, history: History, permits: frozenset[str]) -> None:
        self._permits = permits
        self._converted = catalog_history(history, again=DDL_TWICE in permits)
        self._facts = {index: _fact_of(self._converted, index) for index in self._converted.pairs}
        self._own = self._converted.operations
        self._names = Catalog(self._own, self._converted.bindings).names
        self._dirty = creates_by_name(history) if DIRTY_CREATE in permits else {}
        self._touching = spans_by_name(self._own, Delete, Rename)
        self._renaming = spans_by_name(self._own, Rename)
        parts = [part for operation in self._own for part in self._parts(operation)]
        parts.extend(self._twins())
        if LOST_AFTER_POWER_CUT in permits:
            parts += [
                Operation(-1, ListTables(), cut.index, UNKNOWN, None, cut.index)
                for cut in power_cuts(history)
            ]
        parts.sort(key=lambda operation: operation.call)
        self.operations = parts

    # --- the problem of the search -------------------------------------------------------------

    def _parts(self, operation: CatalogOperation) -> Iterator[CatalogOperation]:
        """Yield the operation unchanged, or as several reads of single names, or nothing.

        The permit `torn-list` splits lists. An answer that proves nothing under a permit is left
        out.
        """
        answer = operation.said
        if answer is UNKNOWN:
            yield operation
        elif isinstance(operation.input, ListTables):
            torn = TORN_LIST in self._permits or self._is_dirty(operation)
            whole = not torn or not is_plain_list(answer)
            yield from (operation,) if whole else self._looks(operation, answer)
        elif not self._is_gap(operation) and not self._is_dirty(operation):
            yield operation

    def _looks(self, operation: CatalogOperation, answer: Answer) -> Iterator[CatalogOperation]:
        listed = {name: (ident, version) for name, ident, version in answer.listing}
        for name in self._names:
            if self._unmade(name, listed.get(name, (None, None))[0], operation):
                continue
            if name in listed:
                ident, version = listed[name]
                look = Answer("ok", table_id=ident, version=version)
            elif overlaps(self._renaming.get(name, ()), operation):
                continue
            else:
                look = Answer("not-found")
            yield replace(operation, input=Look(name), output=look)

    def _is_gap(self, operation: CatalogOperation) -> bool:
        answer = operation.said
        if NAME_GAP not in self._permits or answer is UNKNOWN or answer.result != "not-found":
            return False
        name = getattr(operation.input, "name", None)
        return name is not None and overlaps(self._touching.get(name, ()), operation)

    def _is_dirty(self, operation: CatalogOperation) -> bool:
        answer, call = operation.said, operation.input
        if not self._dirty or answer is UNKNOWN or not _observes(operation):
            return False
        if isinstance(call, ListTables):
            return any(self._unmade(name, ident, operation) for name, ident, _ in answer.listing)
        if answer.result == "exists":
            names = (call.name, getattr(call, "new_name", call.name))
            return any(overlaps(spans, operation) for spans in map(self._spans, names))
        return answer.result == "ok" and self._unmade(call.name, answer.table_id, operation)

    def _spans(self, name: str) -> list[Span]:
        return [span for _, span in self._dirty.get(name, ())]

    def _unmade(self, name: str, ident: str | None, operation: CatalogOperation) -> bool:
        key = None if ident is None else self._converted.bindings.get(ident)
        return ident is not None and any(
            key in {None, nonce} and overlaps([span], operation)
            for nonce, span in self._dirty.get(name, ())
        )

    def _twins(self) -> Iterator[CatalogOperation]:
        if DDL_TWICE not in self._permits:
            return
        for operation in self._own:
            if operation.id not in self._converted.sent_again:
                continue
            again = operation.input
            if isinstance(again, Create):
                again = again._replace(key=self._converted.sent_again[operation.id])
            yield replace(operation, input=again, output=UNKNOWN, return_time=None)

    def _may_be_stale(self, operation: CatalogOperation) -> bool:
        observes = STALE_READ in self._permits and _observes(operation)
        return observes and self._facts[operation.id].term is not None

    # --- judging -------------------------------------------------------------------------------

    def judge(self, end_s: float, steps_max: int = STEPS_MAX) -> Relaxed:
        """Until the time `end_s`, search for an order that explains all answers.

        Count how often that order uses each permit.
        """
        if self._converted.conflicts:
            return Relaxed(None, exhausted=True, stuck=self._converted.conflicts[0].answers[1][0])
        lossy = LOST_AFTER_POWER_CUT in self._permits
        model = Catalog(self.operations, self._converted.bindings, once=not lossy)
        hints = {at: self._hint(o.id) for at, o in enumerate(self.operations)}
        outcome = find_relaxed_order(
            model,
            self.operations,
            self._facts,
            self._may_be_stale,
            hints=hints,
            end_s=end_s,
            guess=partial(
                order_by_term,
                model,
                self.operations,
                self._facts,
                seen=self._converted.seen_creates,
                end_s=end_s,
            ),
            ruled_out=DeadEnds(model, self.operations).after_step,
            steps_max=steps_max,
        )
        stuck = None if outcome.stuck is None else self.operations[outcome.stuck].id
        if outcome.order is None:
            return Relaxed(None, outcome.exhausted, steps=outcome.steps, stuck=stuck)
        counts, examples = self._count(outcome)
        return Relaxed(counts, True, examples, outcome.steps)

    def _hint(self, index: int) -> tuple[int, int]:
        pair = self._converted.pairs.get(self._converted.seen_creates.get(index, index))
        done = None if pair is None else pair.completion
        value = done.value if done and isinstance(done.value, dict) else {}
        term, revision = value.get("term"), value.get("revision")
        return (term if isinstance(term, int) else 0, revision if isinstance(revision, int) else 0)

    def _count(self, outcome: PartialOutcome) -> tuple[dict[str, int], tuple[int, ...]]:
        """Count how often the order needs each permit, and list the operations that need a permit.

        An answer needs no permit if some state between its call and its return explains it. An
        answer that only an older state explains is stale.
        """
        states = _States(self, outcome)
        counts: dict[str, int] = {}
        examples: list[int] = []
        for operation in self._own:
            if operation.is_unknown or not _observes(operation) or states.strictly(operation):
                continue
            permit = STALE_READ
            if self._is_dirty(operation):
                permit = DIRTY_CREATE
            elif not (self._may_be_stale(operation) and states.stale(operation)):
                is_list = isinstance(operation.input, ListTables)
                permit = TORN_LIST if is_list and TORN_LIST in self._permits else NAME_GAP
            permit = permit if permit in self._permits else next(iter(sorted(self._permits)))
            counts[permit] = counts.get(permit, 0) + 1
            examples.append(operation.id)
        if outcome.back:
            counts[LOST_AFTER_POWER_CUT] = len(outcome.back)
        twins = states.twins
        if twins:
            counts[DDL_TWICE] = len(twins)
            examples.extend(twins)
        if not counts:
            counts = dict.fromkeys(sorted(self._permits)[:1], 1)
        return counts, tuple(examples)


class _States:
    """The states of the catalog along an order, and whether they explain an answer."""

    def __init__(self, relaxed: _History, outcome: PartialOutcome) -> None:
        assert outcome.order is not None
        operations = relaxed.operations
        self._relaxed = relaxed
        bindings = relaxed._converted.bindings  # noqa: SLF001
        self._model = Catalog(operations, bindings, once=not outcome.back)
        self.twins: list[int] = []
        self._states: list[Any] = [self._model.init()]
        self._changes: list[CatalogOperation] = []
        lost = {operation.id for operation in relaxed._own if operation.is_unknown}  # noqa: SLF001
        states = states_along(self._model, operations, outcome)
        for at, after in zip(outcome.order, states, strict=True):
            operation = operations[at]
            if after != self._states[-1]:
                self._states.append(after)
                self._changes.append(operation)
                if operation.is_unknown and operation.id not in lost and at not in outcome.back:
                    self.twins.append(operation.id)

    def _any(self, operation: CatalogOperation, must: Sequence[int]) -> bool:
        """Whether the answer is legal in some state after all changes at the positions `must`.

        States after a change that was called after the operation returned do not count.
        """
        end = operation.return_time
        assert end is not None
        first = 1 + max(must, default=-1)
        last = next((at for at, o in enumerate(self._changes) if o.call > end), len(self._changes))
        return any(
            self._model.step(self._states[at], operation.input, operation.said)[0]
            for at in range(first, last + 1)
        )

    def _acknowledged(self, operation: CatalogOperation) -> list[int]:
        return [
            at
            for at, o in enumerate(self._changes)
            if o.return_time is not None and o.return_time < operation.call
        ]

    def strictly(self, operation: CatalogOperation) -> bool:
        """Whether a state between the operation's call and its return explains the answer."""
        return self._any(operation, self._acknowledged(operation))

    def stale(self, operation: CatalogOperation) -> bool:
        """Whether a state that may lack changes of later terms explains the answer."""
        facts = self._relaxed._facts  # noqa: SLF001
        term = facts[operation.id].term
        assert term is not None
        must = []
        for at in self._acknowledged(operation):
            other = facts[self._changes[at].id].term
            if other is None or other <= term:
                must.append(at)
        return self._any(operation, must)


def _fact_of(converted: CatalogHistory, index: int) -> Fact:
    """Return the node and the term of an answer.

    If the create's answer was lost, take the first answer that shows its table instead: a stale
    answer that may miss this state may also miss the create.
    """
    done = converted.pairs[converted.seen_creates.get(index, index)].completion
    if done is None or done.type is OpType.INFO or not isinstance(done.value, dict):
        return Fact(None, None)
    term = done.value.get("term")
    return Fact(term if isinstance(term, int) else None, done.node)


def _observes(operation: CatalogOperation) -> bool:
    """Whether the operation only observed the state: a read, or a refusal because of the state."""
    answer = operation.said
    if answer is UNKNOWN:
        return False
    return isinstance(operation.input, Get | Look | ListTables) or answer.result != "ok"
