"""Small mutations of a correct history break each of the invariants I1 to I9."""

import copy
import random
from collections.abc import Callable
from operator import methodcaller as do
from typing import Any

import pytest

from checkers.catalog.invariants import CatalogInvariantsChecker
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.conduct.crash import CrashChecker
from checkers.verdict.invariants import INVARIANTS, KEY, invariant_of
from harness.ops import CheckResult, History, Verdict
from harness.run.divergence import Checkpoints
from harness.verdict.judge import judge as judge_all
from tests.checkers.catalog.test_invariants import (
    GONE,
    MASTERS,
    edit,
    everywhere,
    raft,
    replica,
    sound_history,
    sound_snapshot,
    table,
    tablet,
)
from tests.support.histories import Writer
from tests.support.repeated import for_each

Json = dict[str, Any]
CHECKERS = (CatalogInvariantsChecker(), CatalogLinearizable(), CrashChecker())


def good_snapshot() -> Json:
    snapshot = sound_snapshot()
    peers = [{"uuid": f"u-{name}", "member_type": "VOTER"} for name in MASTERS]
    for name, dump in snapshot["masters"].items():
        dump["uuid"] = f"u-{name}"
        dump["raft"] |= {"config": {"opid_index": -1, "peers": peers}, "leader_uuid": "u-m2"}
    behind = snapshot["masters"]["m1"]
    behind["raft"] = raft("FOLLOWER", last=4) | {
        "config": {"opid_index": -1, "peers": peers},
        "leader_uuid": "u-m2",
    }
    behind["tables"][1] |= {"version": 1, "applied_version": 1, "state": "RUNNING"}
    behind["tables"][1]["columns"] = behind["tables"][1]["columns"][:2]
    behind["tables"][1]["applied_columns"] = behind["tables"][1]["columns"]
    behind["tables"][1]["next_column_id"] = 2
    for dump in snapshot["tservers"].values():
        for each in dump["tablets"]:
            digest = "c-" + each["tablet_id"]
            each["rows"] = {"live_rows": 7, "digest": digest, "applied_index": 5}
    return snapshot


def good_history(snapshot: Json | None = None, *, facts: bool = True) -> Writer:
    h = sound_history()
    h.lines[-1].value["columns"] = ["a", "z"]  # the columns after the alter must be right as well
    if facts:
        h.fact("leader", {"node": "m1", "term": 1})
        h.fact("leader", {"node": "m2", "term": 3})
        h.fact("node-exit", {"node": "m3", "code": -9, "expected": True, "log": []})
        counts = {"told": 9, "compared": 6, "diverged": 0, "forgotten": 0, "elections": 4}
        h.fact("checkpoints", {**counts, "reached": {}})
    where = {"partitions": 2, "tablets": [located("A1", "", "80"), located("A2", "80", "")]}
    h.ok(4, "locate", {"name": "a"}, {"table_id": "A", "schema_version": 0, "revision": 7, **where})
    h.fact("converged", {"ok": True, "took_s": 1.0, "bound_s": 9.0, "pending": []})
    h.fact("snapshot", good_snapshot() if snapshot is None else snapshot)
    return h


def located(ident: str, start: str, end: str) -> Json:
    replicas = ["u1", "u2", "u3"]
    return {"tablet_id": ident, "start": start, "end": end, "leader": "u1", "replicas": replicas}


def found(history: History) -> list[CheckResult]:
    return [checker.check(history, None, time_limit_s=60) for checker in CHECKERS]


def blamed(results: list[CheckResult]) -> set[str]:
    """Return the names of the broken invariants."""
    names: set[str] = set()
    for result in results:
        if result.verdict is Verdict.INVALID and result.checker == "catalog-invariants":
            names |= {invariant_of(check).id for check in result.details["by_invariant"]}
        elif result.verdict is Verdict.INVALID:
            (name,) = result.details[KEY]
            names.add(name.split()[0])
    return names


def test_the_good_history_is_valid_and_each_invariant_was_looked_at():
    results = found(good_history().history)
    assert [result.verdict for result in results] == [Verdict.VALID] * 3, results
    total: dict[str, int] = {}
    for result in results:
        for name, count in result.details[KEY].items():
            total[name] = total.get(name, 0) + count
    assert sorted(total) == [invariant.name for invariant in INVARIANTS]
    assert all(total.values()), total


def test_unchecked_invariants_are_not_reported_as_held():
    h = sound_history()
    h.fact("converged", {"ok": True, "took_s": 1.0, "bound_s": 9.0, "pending": []})
    h.fact("snapshot", sound_snapshot())
    result = found(h.history)[0]
    assert result.verdict is Verdict.VALID
    assert result.details[KEY]["I8 rows"] == 0
    assert result.reason.endswith("hold; not judged: I8 rows")
    assert "I8" not in result.reason.split("hold")[0]


# --- one mutation per invariant ------------------------------------------------------------------


def by_edits(*edits: tuple[str, Any]) -> Callable[[], History]:
    return lambda: good_history(edit(good_snapshot(), *edits)).history


def with_fact(f: str, value: Any) -> Callable[[], History]:
    def make() -> History:
        h = good_history()
        h.fact(f, value)
        return h.history

    return make


def with_answer(step: Callable[[Writer], int]) -> Callable[[], History]:
    def make() -> History:
        h = good_history()
        step(h)
        return h.history

    return make


def two_tables_one_name() -> Json:
    snapshot = good_snapshot()
    for dump in snapshot["masters"].values():
        dump["tables"].append(table("D", "a") | {"comment": ""})
        dump["tablets"].append(tablet("D1", "D", "", ""))
    for number, dump in enumerate(snapshot["tservers"].values()):
        role = "FOLLOWER" if number else "LEADER"
        added = replica("D1", "D", role)
        dump["tablets"].append(added | {"table_name": "a"})
    return snapshot


def divergence(what: str, *nodes: str, group: str = "A1") -> Json:
    return {
        "group": group,
        "index": 4,
        "what": what,
        "nodes": list(nodes),
        "values": ["x", "y"],
        "times_ns": [1, 2],
    }


STALE_LIST = {"tables": [["a", "A", 0]]}
VANISHED = tablet("Z9", "C", "", "", "DELETED")
EXIT = {"node": "t1", "code": 1, "expected": False, "log": ["F boom"]}
NOT_DONE = {"table_id": "B", "schema_version": 2, "done": False}
MUTANTS: dict[str, tuple[str, Callable[[], History]]] = {
    "two leaders of a term": ("I1", with_fact("leader", {"node": "m3", "term": 3})),
    "two who announced to lead": ("I1", with_fact("divergence", divergence("leader", "t1", "t2"))),
    "another digest of a tablet": ("I2", by_edits(("tservers.t3.tablets.1.raft.digests.0.1", "z"))),
    "two states along the run": ("I2", with_fact("divergence", divergence("state", "t1", "t2"))),
    "an acknowledged change is gone": (
        "I3",
        by_edits(
            *everywhere("tables.1.version", 1),
            *((f"tservers.t{n}.tablets.2.schema_version", 1) for n in (1, 2, 3)),
            *((f"tservers.t{n}.tablets.2.columns.2", GONE) for n in (1, 2, 3)),
            *((f"masters.{m}.tables.1.columns.2", GONE) for m in ("m2", "m3")),
            *everywhere("tables.1.applied_version", 1),
        ),
    ),
    "a revision that fell": ("I3", with_answer(do("get", 5, "a", "A", 0, revision=2))),
    "done no more": ("I4", with_answer(do("ok", 5, "is-alter-done", {"name": "b"}, NOT_DONE))),
    "a stale read": ("I4", with_answer(do("ok", 5, "list", None, STALE_LIST))),
    "two tables of one name": ("I5", lambda: good_history(two_tables_one_name()).history),
    "a number that falls": ("I5", by_edits(("masters.m1.tables.0.next_column_id", 9))),
    "a state that goes back": (
        "I5",
        by_edits(("masters.m1.tables.0.state", "REMOVED"), ("masters.m1.name_map", {"b": "B"})),
    ),
    "a row that vanishes": ("I5", by_edits(("masters.m1.tablets.+", VANISHED))),
    "an opid_index that falls": ("I5", by_edits(("masters.m1.tablets.0.consensus.opid_index", 8))),
    "a hole": ("I6", by_edits(*everywhere("tablets.1.start", "90"))),
    "a table whose key space ends early": ("I6", by_edits(*everywhere("tablets.1.end", "f0"))),
    "still altering": ("I7", by_edits(*everywhere("tables.0.state", "ALTERING"))),
    "a master with other members": ("I7", by_edits(("masters.m3.raft.config.peers", []))),
    "a master with another leader": ("I7", by_edits(("masters.m3.raft.leader_uuid", "u-m1"))),
    "a replica with other rows": ("I8", by_edits(("tservers.t2.tablets.0.rows.digest", "zz"))),
    "a replica with fewer rows": ("I8", by_edits(("tservers.t2.tablets.0.rows.live_rows", 6))),
    "an exit": ("I9", with_fact("node-exit", EXIT)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutation_is_blamed_on_its_invariant_and_on_no_other(name):
    wanted, make = MUTANTS[name]
    results = found(make())
    assert blamed(results) == {wanted}, [(r.reason, r.explanation) for r in results]
    broken = [r for r in results if r.verdict is Verdict.INVALID]
    lines = [
        line for r in broken for line in r.explanation if " with one example each: " not in line
    ]
    if wanted not in {"I4", "I9"}:
        assert all(line.startswith(f"[{wanted} ") for line in lines), lines


def test_every_check_has_one_invariant():
    checks = [check for each in INVARIANTS for check in each.checks]
    assert len(checks) == len(set(checks))


def test_every_invariant_has_mutants():
    assert {wanted for wanted, _ in MUTANTS.values()} == {each.id for each in INVARIANTS}


def test_dumps_of_other_indices_are_not_compared():
    snapshot = good_snapshot()
    for number in range(3):
        each = snapshot["tservers"]["t2"]["tablets"][number]
        each["rows"] = {"applied_index": 4, "digest": "older", "live_rows": 6}
    assert blamed(found(good_history(snapshot).history)) == set()


def test_replicas_without_rows_prove_nothing_of_rows():
    snapshot = good_snapshot()
    held = [each["rows"] for dump in snapshot["tservers"].values() for each in dump["tablets"]]
    for rows in held:
        rows["live_rows"] = 0
    result = found(good_history(snapshot).history)[0]
    assert result.verdict is Verdict.VALID
    assert result.details[KEY]["I8 rows"] == 0
    held[0]["digest"] = "another"
    assert blamed(found(good_history(snapshot).history)) == {"I8"}


@for_each("seed", range(40))
def test_masters_that_lag_are_earlier_states_whatever_they_lag(seed):
    rng = random.Random(seed)
    states = ["PREPARING", "CREATING", "RUNNING", "DELETED"]
    at = sorted(rng.randrange(4) for _ in range(3))
    snapshot = good_snapshot()
    for name, place, applied in zip(("m1", "m3", "m2"), at, (3, 4, 5), strict=True):
        dump = snapshot["masters"][name]
        dump["raft"]["applied_index"] = applied
        dump["tablets"][3] |= {"state": states[place], "running_index": place}
    snapshot["masters"]["m1"]["tables"][1] |= {"version": 0, "applied_version": 0}
    h = good_history(snapshot)
    result = CatalogInvariantsChecker().check(h.history, None, time_limit_s=60)
    assert "forward" not in result.details["by_invariant"], result
    if at[0] != at[2]:
        first, last = (snapshot["masters"][name]["tablets"][3] for name in ("m1", "m2"))
        first["state"], last["state"] = last["state"], first["state"]
        h = good_history(copy.deepcopy(snapshot))
        result = CatalogInvariantsChecker().check(h.history, None, time_limit_s=60)
        assert result.details["by_invariant"]["forward"], result


def test_elections_of_every_group_are_compared():
    seen = Checkpoints()
    assert seen.lead("t1", "A1", 3, 5) == []
    assert seen.lead("t1", "A1", 3, 6) == []  # the same leader, reported again
    assert seen.lead("t2", "A1", 4, 7) == []
    assert seen.lead("t2", "B1", 3, 7) == []
    (divergences,) = seen.lead("t3", "A1", 3, 9)
    assert divergences == divergence("leader", "t1", "t3") | {
        "index": 3,
        "values": ["t1", "t3"],
        "times_ns": [5, 9],
    }
    summary = seen.summary()
    assert summary is not None
    assert summary["elections"] == 3


def test_the_certificate_sums_the_coverage_of_all_checkers():
    class Certifying(CrashChecker):
        name = "certifying"

        def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
            return CheckResult("certifying", Verdict.VALID, "", details={"certificate": {"a": 1}})

    h = good_history()
    judgement = judge_all(h.history, None, [*CHECKERS, Certifying()])  # type: ignore[arg-type]
    certificate = judgement.results[-1].details["certificate"]
    assert sorted(certificate["invariants"]) == [each.name for each in INVARIANTS]
    assert certificate["invariants"]["I9 exits"] == "looked at 1 time"
