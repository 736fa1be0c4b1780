"""Compares acknowledged changes with the final rows (I3, I5 of `checkers.verdict.invariants`).

The final snapshot is taken after all answers, and rows of removed tables are kept forever. So every
table that an answer showed must have a row. A delete whose answer was lost can explain at most one
removed table. If the target hides removed tables, a table without a row counts as removed.

Each row shows the nonce of the create that made it. This create must have been invoked and not
refused, and no two rows may show the same nonce.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from checkers.catalog.history import is_late
from checkers.catalog.invariants.permissions import CatalogFindings, Permissions
from checkers.catalog.invariants.snapshot import LIVE_TABLES, Snapshot
from checkers.catalog.sentences import sentence, table_words, tried
from checkers.verdict.sentences import ops
from harness.ops import History, OpType, Pair
from harness.permits import DDL_TWICE, DIRTY_CREATE
from harness.vocabularies import fields_of, is_ok
from harness.vocabularies.ddl import MUTATIONS

INVARIANT: Final = "acknowledged"


@dataclass(slots=True)
class _Story:
    """The facts that the answers of a history prove about one table."""

    seen: Pair
    version: int = -1
    changed: Pair | None = None  # the acknowledged change that made `version`
    unversioned: int = 0
    deleted: Pair | None = None
    firm: bool = False  # whether an answer proves that the create took effect
    # name -> the highest version that answers showed under this name
    held: dict[str, float] = field(default_factory=dict)
    # name -> (version, completion index) of the last rename away from this name
    left: dict[str, tuple[int, int]] = field(default_factory=dict)

    def show(self, name: str, version: Any) -> None:
        number = version if isinstance(version, int) else math.inf
        self.held[name] = max(self.held.get(name, -1), number)

    def take(self, pair: Pair, version: Any) -> None:
        call, done = pair.invoke, pair.completion
        assert done is not None
        if call.f == "delete":
            self.deleted = pair
        number = version if isinstance(version, int) else 0
        if call.f == "rename":
            self.show(call.value["new_name"], version)
            self.show(call.value["name"], number - 1)
            at = (number, done.index)
            self.left[call.value["name"]] = max(self.left.get(call.value["name"], at), at)
        else:
            self.show(call.value["name"], version)
        if call.f in {"alter", "rename"} and not isinstance(version, int):
            self.unversioned += 1
        elif call.f != "delete" and number >= self.version:
            self.version, self.changed = number, pair

    def names(self, lost_renames: Sequence[Pair]) -> dict[str, float]:
        """Map each name that the table may have had to the last op index at which this was
        possible.

        The index is infinite if the table may still have the name.
        """
        until = {
            name: math.inf
            if name not in self.left or self.left[name][0] <= version
            else self.left[name][1]
            for name, version in self.held.items()
        }
        grown = True
        while grown:
            grown = False
            for pair in lost_renames:
                old, new = pair.invoke.value["name"], pair.invoke.value["new_name"]
                reached = until.get(old, -1) > pair.invoke.index
                if reached and until.get(new) != math.inf:
                    until[new] = math.inf
                    grown = True
        return until


def _stories(history: History, may: Permissions) -> dict[str, _Story]:
    stories: dict[str, _Story] = {}
    for pair in history.pairs:
        call, value = pair.invoke, fields_of(pair.completion)
        if not is_ok(pair):
            continue
        if call.f == "list":
            for name, ident, version in value.get("tables") or ():
                if ident:
                    story = stories.setdefault(ident, _Story(pair))
                    story.show(name, version)
                    story.firm |= may.dirty(pair, name) is None
            continue
        ident, version = value.get("table_id"), value.get("schema_version")
        if not ident:
            continue
        story = stories.setdefault(ident, _Story(pair))
        if call.f in MUTATIONS:
            story.take(pair, version)
            story.firm = True
        else:
            story.show(call.value["name"], version)
            story.firm |= may.dirty(pair, call.value["name"]) is None
    return stories


def check_acknowledged(history: History, snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Compare the final rows with the tables that answers showed."""
    stories = _stories(history, findings.may)
    lost = [pair for pair in history.pairs if pair.type is OpType.INFO]
    # An acknowledged delete that does not say which table it removed explains one removed table.
    unnamed = [pair for pair in history.pairs if pair.invoke.f == "delete" and _names_no_id(pair)]
    deletes = [*unnamed, *(pair for pair in lost if pair.invoke.f == "delete")]
    renames = [pair for pair in lost if pair.invoke.f == "rename"]
    changes = [pair for pair in lost if pair.invoke.f in {"alter", "rename"}]
    again = [pair for pair in history.pairs if is_ok(pair) and findings.may.twice(pair)]
    # removed table -> the unanswered deletes that can have removed it
    suspects: dict[str, list[int]] = {}
    for ident, story in sorted(stories.items()):
        names = story.names(renames)
        row = snapshot.tables.get(ident)
        if row is None and snapshot.hides_removed:
            row = {"id": ident, "name": _last_name(story), "state": "REMOVED", "version": None}
        if row is None:
            findings.look(INVARIANT)
            _missing(ident, story, snapshot, findings)
            continue
        if row["state"] not in LIVE_TABLES and story.deleted is None:
            suspects[ident] = [
                number
                for number, pair in enumerate(deletes)
                if names.get(pair.invoke.value["name"], -1) > pair.invoke.index
            ]
        else:
            findings.look(INVARIANT)
        after = sum(
            names.get(pair.invoke.value["name"], -1) > pair.invoke.index for pair in changes
        )
        repeated = sum(
            pair.invoke.f in {"alter", "rename"} and pair.invoke.value["name"] in names
            for pair in again
        )
        _demand(story, row, _Slack(after, repeated), snapshot, findings)
    unexplained = _unmatched(suspects)
    # A delete that Hive acknowledged is not lost: Kudu applies it later. So the removed table
    # counts as checked, not as exempt.
    late = sum(map(is_late, deletes)) + len(unnamed)
    explained = len(suspects) - len(unexplained)
    for _ in range(min(late, explained)):
        findings.look(INVARIANT)
    findings.exempt(INVARIANT, max(0, explained - late))
    for ident in unexplained:
        findings.look(INVARIANT)
        indices = [deletes[number].invoke.index for number in suspects[ident]]
        why = (
            f"the deletes whose answers were lost or name no table ({ops(indices)}) removed others"
            if indices
            else "nothing deleted it"
        )
        twice = [pair for pair in again if pair.invoke.f == "delete"]
        permit = DDL_TWICE if twice else None
        proof = stories[ident].changed or stories[ident].seen
        if twice:
            del twice[0]  # a delete that was sent twice explains only one more removed table
            again.remove(next(pair for pair in again if pair.invoke.f == "delete"))
        row = snapshot.tables.get(ident, {"name": _last_name(stories[ident]), "state": "absent"})
        findings.violate(
            INVARIANT,
            f"{sentence(proof)}, and {why}, but in "
            f"{_where(snapshot)} {table_words(ident, row['name'])} is {row['state']}.",
            proof.invoke.index,
            *indices,
            permit=permit or findings.may.lost(proof),
        )
    _rows_from_creates(history, snapshot, findings)


def _where(snapshot: Snapshot) -> str:
    return f"the snapshot of the leading master {snapshot.leader}"


def _names_no_id(pair: Pair) -> bool:
    return is_ok(pair) and not fields_of(pair.completion).get("table_id")


def _last_name(story: _Story) -> str:
    return max(story.held, key=lambda name: (story.held[name], name))


class _Slack(NamedTuple):
    """The number of further changes that may have followed an acknowledged change.

    `lost` counts changes whose answers were lost, and `repeated` changes that were sent twice.
    """

    lost: int
    repeated: int


def _missing(ident: str, story: _Story, snapshot: Snapshot, findings: CatalogFindings) -> None:
    if snapshot.rows_left_out:
        findings.exempt(INVARIANT)
        return
    pair = story.changed or story.seen
    name = _last_name(story)
    findings.violate(
        INVARIANT,
        f"{sentence(pair)}, but {_where(snapshot)} has no row of {table_words(ident, name)}; even "
        "a removed table keeps its row.",
        pair.invoke.index,
        permit=findings.may.lost(pair) if story.firm else DIRTY_CREATE,
    )


def _demand(
    story: _Story,
    row: Mapping[str, Any],
    slack: _Slack,
    snapshot: Snapshot,
    findings: CatalogFindings,
) -> None:
    lost = slack.lost + story.unversioned
    words, version = table_words(row["id"], row["name"]), row["version"]
    if story.deleted is not None and row["state"] in LIVE_TABLES:
        findings.violate(
            INVARIANT,
            f"{sentence(story.deleted)}, but in {_where(snapshot)} {words} still exists.",
            story.deleted.invoke.index,
            permit=findings.may.lost(story.deleted),
        )
    changed = story.changed
    if changed is None or version is None:
        return
    name = changed.invoke.value.get("new_name", changed.invoke.value["name"])
    wrong = None
    least = max(story.version, story.unversioned)
    twice = story.version + lost < version <= story.version + lost + slack.repeated
    if version < least:
        wrong = f"is only at version {version}, below {least}"
    elif version > story.version + lost:
        wrong = (
            f"is at version {version}, but at most {lost} of the changes whose answers were lost "
            f"or state no version can have followed version {story.version}"
        )
    elif version == story.version and row["name"] != name:
        wrong = f"is named {row['name']!r} at that version"
    if wrong is not None:
        findings.violate(
            INVARIANT,
            f"{sentence(changed)}, but in {_where(snapshot)} {words} {wrong}.",
            changed.invoke.index,
            permit=DDL_TWICE if twice else findings.may.lost(changed),
        )


def _unmatched(candidates: Mapping[str, Sequence[int]]) -> list[str]:
    owner: dict[int, str] = {}
    without = []
    for first in candidates:
        came_from: dict[int, str] = {}
        queue, end = [first], None
        while queue and end is None:
            here = queue.pop()
            for number in candidates[here]:
                if number in came_from:
                    continue
                came_from[number] = here
                if number not in owner:
                    end = number
                    break
                queue.append(owner[number])
        if end is None:
            without.append(first)
            continue
        owned = {ident: number for number, ident in owner.items()}
        step: int | None = end
        while step is not None:
            ident = came_from[step]
            owner[step], step = ident, owned.get(ident)
    return without


def _rows_from_creates(history: History, snapshot: Snapshot, findings: CatalogFindings) -> None:
    creates = {
        str(pair.invoke.value.get("nonce")): pair
        for pair in history.pairs
        if pair.invoke.f == "create"
    }
    made: dict[str, Mapping[str, Any]] = {}
    for row in snapshot.tables.values() if creates else ():
        if not row.get("comment"):
            continue
        findings.look("created-once")
        nonce, words = row["comment"], table_words(row["id"], row["name"])
        pair, other = creates.get(nonce), made.setdefault(nonce, row)
        if pair is None:
            findings.violate(
                "created-once", f"No client asked for {words}: no create has the nonce {nonce!r}."
            )
        elif pair.type is OpType.FAIL:
            findings.violate(
                "created-once",
                f"{tried(pair)} and was refused, but that made {words}.",
                pair.invoke.index,
            )
        elif other is not row:
            findings.violate(
                "created-once",
                f"{sentence(pair)}; it made {table_words(other['id'], other['name'])} and {words}.",
                pair.invoke.index,
                permit=findings.may.twice(pair),
            )
