"""The checker `members` compares lists of masters with acknowledged changes of membership.

For each master, a list must agree with the last change of this master that was acknowledged before
the list was requested. The list proves nothing about this master if a later change may have taken
effect. A deposed leader may answer with an old list, so a list whose term is older than the
change's term proves nothing either. If the profile lets power cuts undo changes, a contradiction
after a power cut is permitted.

A run without any change of membership proves nothing, unless the profile does not offer such
changes (`Permit.lacks`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.ops import CheckResult, History, OpType, Pair
from harness.permits import LOST_AFTER_POWER_CUT, lossy_cuts, permits_of
from harness.plugins import Checker
from harness.vocabularies import fields_of
from harness.vocabularies.members import AddMaster, ListMasters, RemoveMaster


class MembersChecker(Checker, judges_prefixes=True):
    """Checks that every list of masters has the nodes that were added and not removed."""

    api_version = 1
    name = "members"
    doc = "lists of masters agree with the changes of membership that were acknowledged"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del time_limit_s
        findings = Findings(self.name, permits_of(history))
        cuts = lossy_cuts(history, findings.permits)
        changes: dict[str, list[Pair]] = {}
        for pair in changes_of(history):
            changes.setdefault(node_of(pair), []).append(pair)
        lists = lists_of(history)
        done = sum(pair.type is OpType.OK for pairs in changes.values() for pair in pairs)
        moves = [pair for pair in history.pairs if pair.invoke.f == "move-replica"]
        moved = sum(pair.type is OpType.OK for pair in moves)
        first: dict[str, tuple[bool, Pair]] = {}
        nodes = sorted({*changes, *(node for listed in lists for node in _members(listed))})
        for listed, node in itertools.product(lists, nodes):
            is_in = node in _members(listed)
            touched = [p for p in changes.get(node, ()) if p.invoke.index < _ended(listed)]
            expected = _expected(touched, listed) if touched else None
            if not touched:
                expected = first.setdefault(node, (is_in, listed))
            if expected is None or (touched and _term(listed) < _term(expected[1])):
                continue
            by = expected[1]
            text = _sentence(node, listed, by, is_in=is_in)
            findings.look("members")
            if is_in != expected[0]:
                cut = any(op.index < _ended(listed) for op in cuts)
                permit = LOST_AFTER_POWER_CUT if cut else None
                indices = (by.invoke.index, listed.invoke.index)
                findings.violate("members", text, *indices, permit=permit)
        options = getattr(case, "workload_options", None)
        lacking = {f for permit in findings.permits.values() for f in permit.lacks}
        is_wanted = bool(moves) or not {AddMaster.f, RemoveMaster.f} <= lacking
        is_wanted = is_wanted and not (isinstance(options, Mapping) and options.get("members") == 0)
        if not findings.looked:
            reason = "no list of masters could be compared with a change"
            findings.gap(reason, rule="nothing-looked-at")
        elif is_wanted and not done + moved:
            reason = "no master was added or removed, and no replica asked to move"
            findings.gap(reason, rule="nothing-looked-at")
        reason = (
            f"{counted(len(lists), 'list')} of masters compared with {counted(done, 'change')}; "
            f"{counted(moved, 'replica')} asked to move"
        )
        return findings.result(reason, {"changes": done, "moves": moved})


def changes_of(history: History) -> list[Pair]:
    """Return the additions and removals of masters that took effect or may have."""
    kinds = (AddMaster.f, RemoveMaster.f)
    return [p for p in history.pairs if p.invoke.f in kinds and p.type is not OpType.FAIL]


def lists_of(history: History) -> list[Pair]:
    """Return the lists of masters that were answered."""
    return [p for p in history.pairs if p.invoke.f == ListMasters.f and p.type is OpType.OK]


def node_of(change: Pair) -> str:
    """Return the node that a change names."""
    return str(fields_of(change.invoke).get("node"))


def entries_of(listed: Pair) -> Sequence[Any]:
    """Return the entries of a list: name, role and kind of each master."""
    return fields_of(listed.completion).get("masters") or ()


def may_follow(change: Pair, index: int) -> bool:
    """Whether a change may have taken effect after the op with `index`."""
    return change.type is not OpType.OK or _ended(change) > index


def _members(listed: Pair) -> Mapping[str, None]:
    return dict.fromkeys(str(entry[0]) for entry in entries_of(listed))


def _expected(changes: list[Pair], listed: Pair) -> tuple[bool, Pair] | None:
    """Return whether a node must be in the list `listed`, and the change that proves this.

    `changes` has the node's changes that were called before the list was answered. Returns `None`
    if the membership is uncertain.
    """
    before = [p for p in changes if p.type is OpType.OK and _ended(p) < listed.invoke.index]
    if not before:
        return None
    last = max(before, key=_ended)
    for pair in changes:
        if pair is last:
            continue
        if may_follow(pair, last.invoke.index):
            return None  # `pair` may have taken effect after `last`
    return last.invoke.f == AddMaster.f, last


def _term(pair: Pair) -> int:
    term = fields_of(pair.completion).get("term")
    return term if isinstance(term, int) else 0


def _ended(pair: Pair) -> int:
    return -1 if pair.completion is None else pair.completion.index


def _sentence(node: str, listed: Pair, by: Pair, *, is_in: bool) -> str:
    seen = (
        f"The list of op {listed.invoke.index} has {node}"
        if is_in
        else (f"The list of op {listed.invoke.index} lacks {node}")
    )
    if by.invoke.f == ListMasters.f:
        return (
            f"{seen}, unlike that of op {by.invoke.index}, and nothing changed the membership "
            "in between."
        )
    what = "added" if by.invoke.f == AddMaster.f else "removed"
    return f"{seen}, which op {by.invoke.index} had {what} before."
