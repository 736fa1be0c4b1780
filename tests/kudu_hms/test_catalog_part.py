"""Changes made through Hive, as seen by the checkers of Kudu's catalog."""

from checkers.catalog.history import catalog_part
from checkers.catalog.invariants import CatalogInvariantsChecker
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.sentences import sentence
from harness.ops import OpType
from tests.support.histories import Writer


def verdict(h):
    result = CatalogLinearizable().check(h.history, None, time_limit_s=10)
    return str(result.verdict)


def test_a_change_through_hive_takes_effect_in_kudu_later_and_once():
    h = Writer()
    h.create(0, "db1.x", "1")
    h.ok(1, "hive-rename", {"name": "db1.x", "new_name": "db1.y", "nonce": "r"}, {"result": "ok"})
    h.get(0, "db1.x", "1")  # Kudu has not applied the rename yet
    h.get(0, "db1.y", "1", 1)
    h.ok(1, "hive-drop", {"name": "db1.y", "nonce": "d"}, {"result": "ok"})
    h.get(0, "db1.y", None)
    assert verdict(h) == "valid"
    h.create(0, "db1.y", "2")
    h.get(0, "db1.y", None)  # the drop was of an earlier table
    assert verdict(h) == "invalid"
    (drop,) = [pair for pair in catalog_part(h.history).pairs if pair.invoke.f == "delete"]
    assert sentence(drop).endswith("(op 8, delete, 0.008-0.009 s, by way of Hive, answered by m1)")


def test_changes_refused_by_hive_have_no_effect():
    h = Writer()
    h.create(0, "db1.x", "1")
    h.call(1, "hive-drop", {"name": "db1.x", "nonce": "d"})
    h.ret(1, OpType.FAIL, {"result": "no-such-object"})
    h.get(0, "db1.x", None)
    assert verdict(h) == "invalid"


def test_reads_of_hive_are_none_of_the_catalogs_and_other_histories_stay_as_they_are():
    h = Writer()
    h.create(0, "db1.x", "1")
    plain = h.history
    assert catalog_part(plain) is catalog_part(plain, bounded=False) is plain
    h.ok(1, "hive-get", {"name": "db1.x"}, {"result": "ok", "table_id": "9"})
    h.ok(1, "hive-list", {}, {"result": "ok", "tables": []})
    assert [op.f for op in catalog_part(h.history)] == ["create", "create"]


def test_a_metastore_that_nothing_disturbed_must_not_refuse():
    def judged(*, faulty):
        h = Writer()
        if faulty:
            h.nemesis("inject", {"id": "f1", "kind": "kill", "targets": ["hms1"]})
        h.call(0, "create", {"name": "db1.x", "nonce": "a", "columns": ["v"]})
        error = "HIVE_METASTORE_ERROR/REMOTE_ERROR: no metastore"
        h.add(0, OpType.FAIL, "create", None, "m1", error=error)
        result = CatalogInvariantsChecker().check(h.history, None, time_limit_s=10)
        return result.details["by_invariant"].get("refusals", 0)

    assert (judged(faulty=False), judged(faulty=True)) == (1, 0)
