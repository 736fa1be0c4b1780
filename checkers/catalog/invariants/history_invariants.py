"""Invariants of the catalog along the history, checked in near-linear time.

Op indices serve as time. The invariants are:

* An operation invoked after an acknowledged delete of a table does not see this table.
* The applied schema version of a table never decreases, and is at most the committed version.
* After an answer reports an alter as done, later answers show at least its version as applied.
* The revision and the term of an answer are not below the revision and the term
  of any change that was acknowledged before the operation's invocation.
* At most one node leads in a term (I1 in the bug catalogue's list of invariants).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.sentences import sentence, table_words
from harness.ops import History, Pair
from harness.permits import STALE_READ
from harness.vocabularies import fields_of, is_ok
from harness.vocabularies.ddl import MUTATIONS


def check_history(history: History, findings: CatalogFindings) -> None:
    """Check all invariants of this module, which need no snapshot."""
    pairs = history.pairs
    for name, field in (("revisions", "revision"), ("terms", "term")):
        _monotone(
            name,
            field,
            (
                (p, "", fields_of(p.completion).get(field))
                for p in pairs
                if p.completion is not None
            ),
            findings,
            ack=lambda pair: pair.invoke.f in MUTATIONS and is_ok(pair),
        )
    _applied_is_committed(pairs, findings)
    _monotone(
        "applied-versions",
        "applied schema version",
        (
            (
                p,
                str(fields_of(p.completion).get("table_id")),
                fields_of(p.completion).get("applied_schema_version"),
            )
            for p in pairs
            if is_ok(p) and p.invoke.f == "get"
        ),
        findings,
    )
    _monotone(
        "alter-done",
        "applied schema version",
        _alter_done(pairs),
        findings,
        ack=lambda pair: pair.invoke.f == "is-alter-done",
    )
    _ids_not_reused(pairs, findings)
    _one_leader(history, findings)


def _one_leader(history: History, findings: CatalogFindings) -> None:
    leaders: dict[int, tuple[str, int]] = {}
    for fact in history.facts("leader"):
        node, term = fields_of(fact).get("node"), fields_of(fact).get("term")
        if not isinstance(node, str) or not isinstance(term, int):
            continue
        findings.look("one-leader")
        first, index = leaders.setdefault(term, (node, fact.index))
        if first != node:
            findings.violate(
                "one-leader", f"{first} and {node} both led in term {term}.", index, fact.index
            )


def _applied_is_committed(pairs: Iterable[Pair], findings: CatalogFindings) -> None:
    for pair in pairs:
        value = fields_of(pair.completion)
        applied, committed = value.get("applied_schema_version"), value.get("schema_version")
        if not is_ok(pair) or not isinstance(applied, int) or not isinstance(committed, int):
            continue
        findings.look("applied-versions")
        if applied > committed:
            findings.violate(
                "applied-versions",
                f"{sentence(pair)}, but the answer shows version {applied} as applied.",
                pair.invoke.index,
            )


def _alter_done(pairs: Iterable[Pair]) -> Iterable[tuple[Pair, str, Any]]:
    for pair in pairs:
        value = fields_of(pair.completion)
        if not is_ok(pair):
            continue
        if pair.invoke.f == "get":
            yield pair, str(value.get("table_id")), value.get("applied_schema_version")
        elif pair.invoke.f == "is-alter-done" and value.get("done"):
            yield pair, str(value.get("table_id")), value.get("schema_version")


def _monotone(
    name: str,
    what: str,
    observations: Iterable[tuple[Pair, str, Any]],
    findings: CatalogFindings,
    *,
    ack: Callable[[Pair], bool] = lambda _: True,
) -> None:
    """Check that no operation shows a lower number than an answer before its invocation.

    `observations` has (operation, subject, number). Subjects are independent of each other. Only an
    answer for which `ack` is true sets a minimum for later numbers. If the profile permits stale
    answers, this minimum holds only for the same node or the same term.
    """
    events: list[tuple[int, int, Pair, str, int]] = []
    for pair, subject, number in observations:
        if isinstance(number, int):
            assert pair.completion is not None
            events.append((pair.invoke.index, 0, pair, subject, number))
            if ack(pair):
                events.append((pair.completion.index, 1, pair, subject, number))
    highest: dict[str, tuple[int, Pair]] = {}
    of_leader: dict[str, dict[tuple[Any, Any], tuple[int, Pair]]] = {}
    for _, kind, pair, subject, number in sorted(events, key=lambda event: event[:2]):
        best = highest.get(subject)
        if kind == 1:
            if best is None or number > best[0]:
                highest[subject] = (number, pair)
            numbers = of_leader.setdefault(subject, {})
            key = (fields_of(pair.completion).get("term"), pair.completion.node)  # type: ignore[union-attr]
            if key not in numbers or number > numbers[key][0]:
                numbers[key] = (number, pair)
            continue
        findings.look(name)
        permit = None
        if best is not None and number < best[0] and findings.may.later(pair, best[1]):
            not_later = [
                each
                for each in of_leader[subject].values()
                if not findings.may.later(pair, each[1])
            ]
            nearest = max(not_later, key=lambda each: each[0], default=None)
            if nearest is not None and number < nearest[0]:
                best = nearest
            else:
                permit = STALE_READ
        if best is not None and permit is None and number < best[0]:
            permit = findings.may.lost(best[1])
        if best is not None and number < best[0]:
            about = f" of {table_words(subject, _name_in(best[1]))}" if subject else ""
            findings.violate(
                name,
                f"The {what}{about} went back from {best[0]} to {number}: "
                f"{_lower(sentence(best[1]))}, and after that {_lower(sentence(pair))}.",
                best[1].invoke.index,
                pair.invoke.index,
                permit=permit,
            )


def _name_in(pair: Pair) -> str | None:
    call = fields_of(pair.invoke)
    name: str | None = call.get("new_name", call.get("name"))
    return name


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _seen_ids(pair: Pair) -> list[str]:
    value = fields_of(pair.completion)
    if not is_ok(pair):
        return []
    if pair.invoke.f == "list":
        return [entry[1] for entry in value.get("tables", ()) if entry[1]]
    return [value["table_id"]] if value.get("table_id") else []


def _ids_not_reused(pairs: Iterable[Pair], findings: CatalogFindings) -> None:
    deleted: dict[str, Pair] = {}
    created: dict[str, Pair] = {}
    every = list(pairs)
    for pair in every:
        ids = _seen_ids(pair)
        book = {"delete": deleted, "create": created}.get(pair.invoke.f)
        for ident in ids if book is not None else ():
            assert book is not None
            findings.look("ids-not-reused")
            first = book.setdefault(ident, pair)
            if first is not pair:
                findings.violate(
                    "ids-not-reused",
                    f"{table_words(ident, _name_in(first))} was {pair.invoke.f}d twice: "
                    f"{_lower(sentence(first))}, and {_lower(sentence(pair))}.",
                    first.invoke.index,
                    pair.invoke.index,
                    permit=findings.may.lost(first),
                )
    for pair in every:
        for ident in _seen_ids(pair):
            grave = deleted.get(ident)
            if grave is None or grave is pair:
                continue
            assert grave.completion is not None
            if pair.invoke.index > grave.completion.index:
                findings.violate(
                    "ids-not-reused",
                    f"{table_words(ident, _name_in(grave))} was seen after its deletion: "
                    f"{_lower(sentence(grave))}, and after that {_lower(sentence(pair))}.",
                    grave.invoke.index,
                    pair.invoke.index,
                    permit=STALE_READ
                    if findings.may.later(pair, grave)
                    else findings.may.lost(grave),
                )
