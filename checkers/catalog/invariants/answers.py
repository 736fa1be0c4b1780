"""Rules about tablets, the field `done`, and applied schema versions in answers.

The linearizability checker judges names, ids and versions. This module judges the rest:

* The tablets that `locate` shows cover the key space exactly once, in the requested number. A
  tablet keeps its table and its key range. The leader is one of the replicas.
* `done` is not reported too early: every tablet ran at that moment, and some replica of each tablet
  had the version that the answer calls applied.
* A change that is done stays done. While a table is being deleted, its creation is not judged,
  since Kudu removes the tablets before the table.
* After the target has settled, `done` is true for every table, and the newest version is applied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.snapshot import Snapshot
from checkers.catalog.sentences import sentence, table_words
from checkers.verdict.disturbances import Disturbance, citation, disturbances_of
from checkers.verdict.sentences import seconds
from harness.errors import counted
from harness.ops import NEMESIS, History, OpType, Pair
from harness.permits import STALE_READ
from harness.timeline import DISK, faults_of
from harness.vocabularies import fields_of, is_ok

CREATION: Final = "creation"
TOLD_WITHIN_NS: Final = 1_000_000_000
"""The maximum time until the harness records a replica's announcement, if no fault delays it."""
FIRST_CONFIG: Final = -1
"""The `opid_index` of a Raft configuration that never changed."""


class _Shown(NamedTuple):
    pair: Pair
    ident: str
    value: Mapping[str, Any]

    @property
    def words(self) -> str:
        """The table in words for a sentence, with the name from the request."""
        return table_words(self.ident, self.pair.invoke.value.get("name"))


def _shown(history: History, *kinds: str) -> Iterator[_Shown]:
    for pair in history.pairs:
        value = fields_of(pair.completion)
        if pair.invoke.f in kinds and is_ok(pair) and value.get("table_id"):
            yield _Shown(pair, value["table_id"], value)


def check_answers(history: History, snapshot: Snapshot | None, findings: CatalogFindings) -> None:
    """Check the rules about answers. Without a snapshot, check only the rules that need no final
    rows.
    """
    located = [
        answer for answer in _shown(history, "locate") if answer.value.get("tablets") is not None
    ]
    asked = {
        answer.ident: answer.pair.invoke.value
        for answer in _shown(history, "create")
        if isinstance(answer.pair.invoke.value, Mapping)
    }
    for answer in located:
        _covers(answer, asked.get(answer.ident), findings)
    _tablets_keep(located, findings)
    _done_stays_done(history, located, findings)
    _done_at_rest(history, snapshot, findings)
    if snapshot is not None:
        _known_to_rows(located, snapshot, findings)
        _keep_their_voters(history, located, snapshot, findings)
        _done_too_early(history, snapshot, findings)
        _applied_too_early(history, snapshot, findings)


def _complain(
    findings: CatalogFindings, invariant: str, answer: _Shown, what: str, may_be_lost: bool = False
) -> None:
    permit = findings.may.lost(answer.pair) if may_be_lost else None
    text = f"{sentence(answer.pair)}, but {what}."
    findings.violate(invariant, text, answer.pair.invoke.index, permit=permit)


# --- locate -----------------------------------------------------------------------------------


def _covers(answer: _Shown, asked: Mapping[str, Any] | None, findings: CatalogFindings) -> None:
    if answer.value.get("truncated"):
        findings.exempt("located")
        return
    findings.look("located")
    tablets = sorted((tablet["start"], tablet["end"]) for tablet in answer.value["tablets"])
    position, ended = "", False
    wanted = None if asked is None else asked.get("partitions")
    for start, end in tablets:
        if ended or start != position:
            what = f"its tablets skip keys, or overlap, from {position or 'the start'} on"
            break
        position, ended = end, end == ""
    else:
        if not ended:
            what = f"no tablet holds keys from {position or 'the start'} on"
        elif isinstance(wanted, int) and len(tablets) != wanted:
            what = (
                f"showed {counted(len(tablets), 'tablet')} of a table that was made with {wanted}"
            )
        else:
            return
    _complain(findings, "located", answer, what)


def _tablets_keep(located: Sequence[_Shown], findings: CatalogFindings) -> None:
    first: dict[str, tuple[tuple[str, str, str], _Shown]] = {}
    for answer in located:
        for tablet in answer.value["tablets"]:
            findings.look("located-tablets")
            ident = tablet["tablet_id"]
            here = (answer.ident, tablet["start"], tablet["end"])
            there, other = first.setdefault(ident, (here, answer))
            if there != here:
                findings.violate(
                    "located-tablets",
                    f"Tablet {ident} changed its table or its keys: {sentence(other.pair)}, and "
                    f"{sentence(answer.pair)}.",
                    other.pair.invoke.index,
                    answer.pair.invoke.index,
                )
            replicas, leader = list(tablet["replicas"]), tablet.get("leader")
            if not replicas or len(set(replicas)) != len(replicas):
                what = f"tablet {ident} has the replicas {', '.join(replicas) or 'none'}"
                _complain(findings, "located-tablets", answer, what)
            elif leader is not None and leader not in replicas:
                what = f"tablet {ident} is led by {leader}, which is none of its replicas"
                _complain(findings, "located-tablets", answer, what)


def _known_to_rows(
    located: Sequence[_Shown], snapshot: Snapshot, findings: CatalogFindings
) -> None:
    if snapshot.rows_left_out:
        findings.exempt("located-rows", len(located))
        return
    for answer in located:
        for tablet in answer.value["tablets"]:
            findings.look("located-rows")
            ident = tablet["tablet_id"]
            row = snapshot.tablets.get(ident)
            if row is None and snapshot.hides_removed and answer.ident not in snapshot.tables:
                continue
            if row is None:
                what = f"the final rows have no tablet {ident}"
            elif row["table_id"] != answer.ident:
                what = f"tablet {ident} belongs to {snapshot.words(row['table_id'])}"
            elif (row["start"], row["end"]) != (tablet["start"], tablet["end"]):
                what = f"tablet {ident} holds the keys {row['start']!r} to {row['end']!r}"
            else:
                consensus: Mapping[str, Any] = row.get("consensus") or {}
                other = _other_leader(answer, tablet, consensus, snapshot)
                if other is not None:
                    _complain(findings, "located-rows", answer, other, may_be_lost=True)
                    continue
                if consensus.get("opid_index") != FIRST_CONFIG:
                    continue
                peers = sorted(peer["uuid"] for peer in consensus["peers"])
                if peers == sorted(tablet["replicas"]):
                    continue
                what = (
                    f"the replicas of tablet {ident} are {', '.join(peers)}, and were so from its "
                    f"beginning; the answer names {', '.join(tablet['replicas'])}"
                )
            _complain(findings, "located-rows", answer, what, may_be_lost=True)


def _keep_their_voters(
    history: History, located: Sequence[_Shown], snapshot: Snapshot, findings: CatalogFindings
) -> None:
    """Check that each located tablet has as many voters as its table asks for.

    Kudu evicts a replica only after its replacement has become a voter (scheme 3-4-3). A replica
    whose disk failed may be evicted earlier, so runs with disk faults are not judged.
    """
    if not snapshot.keeps_voters:
        return
    if any(fault.kind == DISK for fault in faults_of(history.of_process(NEMESIS), most=None)):
        return
    for answer in located:
        wanted = (snapshot.tables.get(answer.ident) or {}).get("num_replicas", 0)
        for tablet in answer.value["tablets"]:
            findings.look("located-voters")
            if len(tablet["replicas"]) < wanted:
                voters = counted(len(tablet["replicas"]), "voter")
                what = f"tablet {tablet['tablet_id']} has {voters}, and its table asks for {wanted}"
                text = f"{sentence(answer.pair)}, but {what}."
                begun = answer.pair.invoke.index
                lost = findings.may.lost_before(begun)
                findings.violate("located-voters", text, begun, permit=lost)


def _other_leader(
    answer: _Shown, tablet: Mapping[str, Any], consensus: Mapping[str, Any], snapshot: Snapshot
) -> str | None:
    """Say why the leader that an answer names for a tablet is wrong; `None` if it is right.

    The leader can only be compared if answer and final rows have the same term and revision.
    """
    rows = snapshot.masters[snapshot.leader]
    of_rows = (rows.get("term"), rows.get("revision"))
    of_answer = (answer.value.get("term"), answer.value.get("revision"))
    if None in of_rows or of_answer != of_rows or not consensus:
        return None
    named, leads = tablet.get("leader"), consensus.get("leader_uuid")
    if named == leads:
        return None
    return (
        f"it names {named or 'no server'} as the leader of tablet {tablet['tablet_id']}, while the "
        f"rows of the same revision {of_rows[1]} name {leads or 'none'}"
    )


# --- done -------------------------------------------------------------------------------------


def _done_stays_done(
    history: History, located: Iterable[_Shown], findings: CatalogFindings
) -> None:
    proofs: list[tuple[int, tuple[str, Any], _Shown]] = []

    def prove(answer: _Shown, version: Any) -> None:
        assert answer.pair.completion is not None
        proofs.append((answer.pair.completion.index, (answer.ident, version), answer))

    for answer in located:
        prove(answer, CREATION)
    claims = list(_shown(history, "is-create-done", "is-alter-done"))
    for answer in claims:
        if answer.value.get("done"):
            prove(answer, _subject(answer)[1])
    for answer in _shown(history, "get"):
        version = answer.value.get("schema_version")
        if version is not None and version == answer.value.get("applied_schema_version"):
            prove(answer, version)
    by_key: dict[tuple[str, Any], list[tuple[int, _Shown]]] = {}
    for at, key, answer in sorted(proofs, key=lambda proof: proof[0]):
        by_key.setdefault(key, []).append((at, answer))
    deletes = [pair for pair in history.pairs if pair.invoke.f == "delete"]
    for answer in claims:
        if _is_being_deleted(answer, deletes):
            findings.exempt("done")
            continue
        findings.look("done")
        if answer.value.get("done") is not False:
            continue
        asked = answer.pair.invoke.index
        before = [proof for at, proof in by_key.get(_subject(answer), ()) if at < asked]
        if not before:
            continue
        not_later = (proof for proof in before if not findings.may.later(answer.pair, proof.pair))
        first = next(not_later, None)
        proof = before[0] if first is None else first
        findings.violate(
            "done",
            f"{sentence(answer.pair)} and was answered that it is not done, but an earlier "
            "answer proves that it was: "
            f"{sentence(proof.pair)}.",
            proof.pair.invoke.index,
            asked,
            permit=STALE_READ if first is None else findings.may.lost(proof.pair),
        )


def _is_being_deleted(answer: _Shown, deletes: Iterable[Pair]) -> bool:
    if answer.pair.invoke.f != "is-create-done" or answer.value.get("done") is not False:
        return False
    assert answer.pair.completion is not None
    asked, answered = answer.pair.invoke, answer.pair.completion
    for pair in deletes:
        end = math.inf if pair.completion is None else pair.completion.index
        if pair.type is OpType.INFO:  # the delete may take effect at any later time
            end = math.inf
            hits = fields_of(pair.invoke).get("name") == fields_of(asked).get("name")
        else:
            hits = is_ok(pair) and fields_of(pair.completion).get("table_id") == answer.ident
        if hits and pair.invoke.index < answered.index and end > asked.index:
            return True
    return False


def _subject(answer: _Shown) -> tuple[str, Any]:
    created = answer.pair.invoke.f == "is-create-done"
    return answer.ident, CREATION if created else answer.value.get("schema_version")


def _done_at_rest(history: History, snapshot: Snapshot | None, findings: CatalogFindings) -> None:
    """Judge requests that were invoked after the target had settled.

    A table with too few servers stays unfinished and is not judged. A request delayed in the
    network may still have changed the state, so only answers about the settled state count.
    """
    settled = list(history.facts("converged"))
    at = settled[-1].value.get("at") if settled and settled[-1].value.get("ok") else None
    if not at:
        return
    for answer in _shown(history, "is-create-done", "is-alter-done", "get"):
        later = answer.pair.invoke.index > settled[-1].index
        if not later or any(answer.value.get(name) != value for name, value in at.items()):
            continue
        if snapshot is not None and snapshot.lacks_servers(answer.ident):
            continue
        findings.look("done-at-rest")
        version, applied = (answer.value.get(f"{of}schema_version") for of in ("", "applied_"))
        if answer.value.get("done") is False:
            what = "was answered that it is not done, although the target had settled"
        elif applied is not None and applied != version:
            what = (
                f"was answered that version {applied} is applied, although the target had settled"
            )
        else:
            continue
        _complain(findings, "done-at-rest", answer, what)


def _done_too_early(history: History, snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Check that every tablet of a table ran at the revision of an answer with `done`.

    A tablet that ran is never replaced. So the answer was about the table's tablets that are not
    REPLACED at the end of the run.
    """
    tablets: dict[str, list[dict[str, Any]]] = {}
    for row in _fixed_tablets(snapshot):
        if row["state"] != "REPLACED" and row.get("running_index") is not None:
            tablets.setdefault(row["table_id"], []).append(row)
    for answer in _shown(history, "is-create-done", "locate"):
        revision = answer.value.get("revision")
        if answer.value.get("done") is False or not isinstance(revision, int):
            continue
        for row in tablets.get(answer.ident, ()):
            since = row["running_index"]
            findings.look("done-early")
            if since == 0 or since > revision:
                when = "never ran" if since == 0 else f"ran from revision {since} on"
                _complain(
                    findings,
                    "done-early",
                    answer,
                    f"its answer is of revision {revision}, and tablet {row['id']} {when}",
                    may_be_lost=True,
                )


def _fixed_tablets(snapshot: Snapshot) -> list[dict[str, Any]]:
    changing = {ident for ident, table in snapshot.tables.items() if table.get("is_bounded")}
    return [row for row in snapshot.tablets.values() if row["table_id"] not in changing]


def _delays_news(disturbance: Disturbance, begin_ns: int, end_ns: int) -> bool:
    return disturbance.kind != "starvation" or disturbance.overlaps(begin_ns, end_ns)


def _applied_too_early(history: History, snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Check that some replica of each tablet had the version that an answer calls applied.

    One replica is enough, since the group has committed what a replica applied. A tablet that was
    not created in time is REPLACED, so one tablet per key range is enough.
    """
    facts = list(history.facts("checkpoints"))
    reached = facts[-1].value.get("reached", {}).get("version") if facts else None
    if not reached:
        return
    ranges: dict[str, dict[tuple[str, str], list[str]]] = {}
    for row in _fixed_tablets(snapshot):
        of_table = ranges.setdefault(row["table_id"], {})
        of_table.setdefault((row["start"], row["end"]), []).append(row["id"])
    disturbances = disturbances_of(history)
    for answer in _shown(history, "is-alter-done", "get"):
        is_get = answer.pair.invoke.f == "get"
        version = answer.value.get("applied_schema_version" if is_get else "schema_version")
        if answer.value.get("done") is False or not isinstance(version, int) or version < 1:
            continue
        done = answer.pair.completion
        assert done is not None
        for tablet_ids in ranges.get(answer.ident, {}).values():
            findings.look("applied-early")
            steps = [step for tablet_id in tablet_ids for step in reached.get(tablet_id, ())]
            since = min((at for step, at in steps if step >= version), default=None)
            if since is not None and since <= done.time + TOLD_WITHIN_NS:
                continue
            when = "at no time" if since is None else f"only at {seconds(since)} s"
            what = f"version {version} was applied in tablet {' or '.join(tablet_ids)} {when}"
            late = done.time + TOLD_WITHIN_NS if since is None else since
            delays = [each for each in disturbances if _delays_news(each, done.time, late)]
            # A disturbance may have delayed the replica's announcement to the harness.
            if delays:
                what = f"{what}. That proves nothing: {citation(delays)}"
                findings.gap(f"{sentence(answer.pair)}, but {what}")
            else:
                _complain(findings, "applied-early", answer, what)
