"""What answers say besides names, ids and versions, which the linearizability checker judges.

* `locate` shows the tablets of a table: they cover the key space exactly once, as many as the
  create asked for; each belongs to one table and keeps its key range for ever; its leader is one of
  its replicas, which are different servers. The final rows know the tablet, and if its
  configuration never changed, the same replicas.
* `done` is not too early: at the revision of the answer every tablet ran (rows tell since when),
  and some replica of each had the version that is called applied (checkpoints tell when);
  and not forgotten: what was done once stays so, and so does what `locate` or `get` proved.
* At rest all is done: once the target has settled, `done` is true of every table, and `get` shows
  its newest version as the applied one.
* An answer's term is at least that of everything acknowledged before it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.catalog.invariants.permissions import Permissions
from checkers.catalog.invariants.snapshot import Snapshot
from checkers.catalog.sentences import sentence, table_words
from checkers.verdict.disturbances import Disturbance, citation, disturbances_of
from checkers.verdict.findings import Findings
from checkers.verdict.sentences import seconds
from harness.errors import counted
from harness.ops import History, Pair
from harness.permits import STALE_READ
from harness.vocabularies import fields_of, is_ok

CREATION: Final = "creation"
TOLD_WITHIN_NS: Final = 1_000_000_000
"""How late the harness may hear what a replica announces, where it was not disturbed itself."""
FIRST_CONFIG: Final = -1
"""The index of a configuration that was never changed."""


class _Shown(NamedTuple):
    """A successful answer about one table."""

    pair: Pair
    ident: str
    value: Mapping[str, Any]

    @property
    def words(self) -> str:
        """The table, by the name that was asked for."""
        return table_words(self.ident, self.pair.invoke.value.get("name"))


def _shown(history: History, *kinds: str) -> Iterator[_Shown]:
    for pair in history.pairs:
        value = fields_of(pair.completion)
        if pair.invoke.f in kinds and is_ok(pair) and value.get("table_id"):
            yield _Shown(pair, value["table_id"], value)


def check_answers(
    history: History, snapshot: Snapshot | None, findings: Findings, permissions: Permissions
) -> None:
    """All of the above; without a snapshot, what answers prove among themselves."""
    located = [
        shown for shown in _shown(history, "locate") if shown.value.get("tablets") is not None
    ]
    asked = {
        shown.ident: shown.pair.invoke.value
        for shown in _shown(history, "create")
        if isinstance(shown.pair.invoke.value, Mapping)
    }
    for shown in located:
        _covers(shown, asked.get(shown.ident), findings)
    _tablets_keep(located, findings)
    _done_stays_done(history, located, findings, permissions)
    _done_at_rest(history, findings)
    if snapshot is not None:
        _known_to_rows(located, snapshot, findings, permissions)
        _done_too_early(history, snapshot, findings, permissions)
        _applied_too_early(history, snapshot, findings)


def _complain(
    findings: Findings,
    invariant: str,
    shown: _Shown,
    what: str,
    permissions: Permissions | None = None,
) -> None:
    """With `permissions`, what an answer showed may have been lost after it."""
    assert shown.pair.completion is not None
    permit = None if permissions is None else permissions.lost(shown.pair)
    text = f"{sentence(shown.pair)}, but {what}."
    findings.violate(invariant, text, shown.pair.invoke.index, permit=permit)


# --- locate -----------------------------------------------------------------------------------


def _covers(shown: _Shown, asked: Mapping[str, Any] | None, findings: Findings) -> None:
    """Keys are hex; the empty one is both ends of the key space."""
    if shown.value.get("truncated"):
        findings.exempt("located")
        return
    findings.look("located")
    tablets = sorted((tablet["start"], tablet["end"]) for tablet in shown.value["tablets"])
    position, ended = "", False
    wanted = None if asked is None else asked.get("partitions")
    for start, end in tablets:
        if ended or start != position:
            what = f"its tablets leave out or hold twice keys from {position or 'the start'} on"
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
    _complain(findings, "located", shown, what)


def _tablets_keep(located: Sequence[_Shown], findings: Findings) -> None:
    """Table and key range of a tablet are the same in all answers; its leader is a replica."""
    first: dict[str, tuple[tuple[str, str, str], _Shown]] = {}
    for shown in located:
        for tablet in shown.value["tablets"]:
            findings.look("located-tablets")
            ident = tablet["tablet_id"]
            here = (shown.ident, tablet["start"], tablet["end"])
            there, other = first.setdefault(ident, (here, shown))
            if there != here:
                findings.violate(
                    "located-tablets",
                    f"Tablet {ident} changed its table or its keys: {sentence(other.pair)}, and "
                    f"{sentence(shown.pair)}.",
                    other.pair.invoke.index,
                    shown.pair.invoke.index,
                )
            replicas, leader = list(tablet["replicas"]), tablet.get("leader")
            if not replicas or len(set(replicas)) != len(replicas):
                what = f"tablet {ident} has the replicas {', '.join(replicas) or 'none'}"
                _complain(findings, "located-tablets", shown, what)
            elif leader is not None and leader not in replicas:
                what = f"tablet {ident} is led by {leader}, which is none of its replicas"
                _complain(findings, "located-tablets", shown, what)


def _known_to_rows(
    located: Sequence[_Shown], snapshot: Snapshot, findings: Findings, permissions: Permissions
) -> None:
    if snapshot.rows_left_out:
        findings.exempt("located-rows", len(located))
        return
    for shown in located:
        for tablet in shown.value["tablets"]:
            findings.look("located-rows")
            ident = tablet["tablet_id"]
            row = snapshot.tablets.get(ident)
            if row is None:
                what = f"the final rows have no tablet {ident}"
            elif row["table_id"] != shown.ident:
                what = f"tablet {ident} belongs to {snapshot.words(row['table_id'])}"
            elif (row["start"], row["end"]) != (tablet["start"], tablet["end"]):
                what = f"tablet {ident} holds the keys {row['start']!r} to {row['end']!r}"
            else:
                consensus: Mapping[str, Any] = row.get("consensus") or {}
                if consensus.get("opid_index") != FIRST_CONFIG:
                    continue
                peers = sorted(peer["uuid"] for peer in consensus["peers"])
                if peers == sorted(tablet["replicas"]):
                    continue
                what = (
                    f"the replicas of tablet {ident} are {', '.join(peers)}, and were so from its "
                    f"beginning; the answer names {', '.join(tablet['replicas'])}"
                )
            _complain(findings, "located-rows", shown, what, permissions)


# --- done -------------------------------------------------------------------------------------


def _done_stays_done(
    history: History, located: Iterable[_Shown], findings: Findings, permissions: Permissions
) -> None:
    """`done` of a creation, and of each version of an alteration, once proven, holds for ever."""
    proofs: list[tuple[int, tuple[str, Any], _Shown]] = []

    def prove(shown: _Shown, version: Any) -> None:
        assert shown.pair.completion is not None
        proofs.append((shown.pair.completion.index, (shown.ident, version), shown))

    for shown in located:
        prove(shown, CREATION)
    claims = list(_shown(history, "is-create-done", "is-alter-done"))
    for shown in claims:
        if shown.value.get("done"):
            prove(shown, _subject(shown)[1])
    for shown in _shown(history, "get"):
        version = shown.value.get("schema_version")
        if version is not None and version == shown.value.get("applied_schema_version"):
            prove(shown, version)
    by_key: dict[tuple[str, Any], list[tuple[int, _Shown]]] = {}
    for at, key, shown in sorted(proofs, key=lambda proof: proof[0]):
        by_key.setdefault(key, []).append((at, shown))
    for shown in claims:
        findings.look("done")
        if shown.value.get("done") is not False:
            continue
        asked = shown.pair.invoke.index
        before = [proof for at, proof in by_key.get(_subject(shown), ()) if at < asked]
        if not before:
            continue
        known = (proof for proof in before if not permissions.later(shown.pair, proof.pair))
        found = next(known, None)
        proof = before[0] if found is None else found
        findings.violate(
            "done",
            f"{sentence(shown.pair)} and was told that it is not done, but it was before: "
            f"{sentence(proof.pair)}.",
            proof.pair.invoke.index,
            asked,
            permit=STALE_READ if found is None else permissions.lost(proof.pair),
        )


def _subject(shown: _Shown) -> tuple[str, Any]:
    """What an answer with `done` is about: a table, and its creation or a version of it."""
    created = shown.pair.invoke.f == "is-create-done"
    return shown.ident, CREATION if created else shown.value.get("schema_version")


def _done_at_rest(history: History, findings: Findings) -> None:
    """What was asked for after the target had settled, of the state that had: something that was
    kept on its way may have changed it since.
    """
    settled = list(history.facts("converged"))
    at = settled[-1].value.get("at") if settled and settled[-1].value.get("ok") else None
    if not at:
        return
    for shown in _shown(history, "is-create-done", "is-alter-done", "get"):
        later = shown.pair.invoke.index > settled[-1].index
        if not later or any(shown.value.get(name) != value for name, value in at.items()):
            continue
        findings.look("done-at-rest")
        version, applied = (shown.value.get(f"{of}schema_version") for of in ("", "applied_"))
        if shown.value.get("done") is False:
            what = "was told that it is not done, although all had settled"
        elif applied is not None and applied != version:
            what = f"all had settled, and version {applied} is the applied one"
        else:
            continue
        _complain(findings, "done-at-rest", shown, what)


def _done_too_early(
    history: History, snapshot: Snapshot, findings: Findings, permissions: Permissions
) -> None:
    """At the revision of an answer that says so, every tablet of the table ran.

    A tablet that ran is never replaced, so that those of a table which are not REPLACED in the end
    are those that the answer was about.
    """
    tablets: dict[str, list[dict[str, Any]]] = {}
    for row in snapshot.tablets.values():
        if row["state"] != "REPLACED" and row.get("running_index") is not None:
            tablets.setdefault(row["table_id"], []).append(row)
    for shown in _shown(history, "is-create-done", "locate"):
        revision = shown.value.get("revision")
        if shown.value.get("done") is False or not isinstance(revision, int):
            continue
        for row in tablets.get(shown.ident, ()):
            since = row["running_index"]
            findings.look("done-early")
            if since == 0 or since > revision:
                when = "never ran" if since == 0 else f"ran from revision {since} on"
                _complain(
                    findings,
                    "done-early",
                    shown,
                    f"its answer is of revision {revision}, and tablet {row['id']} {when}",
                    permissions,
                )


def _delays_news(disturbance: Disturbance, begin_ns: int, end_ns: int) -> bool:
    """Who starves tells it later, and not less."""
    return disturbance.kind != "starvation" or disturbance.overlaps(begin_ns, end_ns)


def _applied_too_early(history: History, snapshot: Snapshot, findings: Findings) -> None:
    """A version is applied when some replica of every tablet has it: its group committed it.

    A tablet that was not created in time is REPLACED by another one of its range, which is younger
    than the answer may be: of a range, any tablet that has the version will do.
    """
    facts = list(history.facts("checkpoints"))
    reached = facts[-1].value.get("reached", {}).get("version") if facts else None
    if not reached:
        return
    ranges: dict[str, dict[tuple[str, str], list[str]]] = {}
    for row in snapshot.tablets.values():
        of_table = ranges.setdefault(row["table_id"], {})
        of_table.setdefault((row["start"], row["end"]), []).append(row["id"])
    disturbances = disturbances_of(history)
    for shown in _shown(history, "is-alter-done", "get"):
        is_get = shown.pair.invoke.f == "get"
        version = shown.value.get("applied_schema_version" if is_get else "schema_version")
        if shown.value.get("done") is False or not isinstance(version, int) or version < 1:
            continue  # at version 0 nothing was altered
        done = shown.pair.completion
        assert done is not None
        for tablet_ids in ranges.get(shown.ident, {}).values():
            findings.look("applied-early")
            steps = [step for tablet_id in tablet_ids for step in reached.get(tablet_id, ())]
            since = min((at for step, at in steps if step >= version), default=None)
            if since is not None and since <= done.time + TOLD_WITHIN_NS:
                continue
            when = "at no time" if since is None else f"only at {seconds(since)} s"
            what = f"version {version} was applied in tablet {' or '.join(tablet_ids)} {when}"
            late = done.time + TOLD_WITHIN_NS if since is None else since
            own = [each for each in disturbances if _delays_news(each, done.time, late)]
            if own:  # they may have kept from the harness what the replica announced
                what = f"{what}. That proves nothing: {citation(own)}"
                findings.gap(f"{sentence(shown.pair)}, but {what}")
            else:
                _complain(findings, "applied-early", shown, what)
