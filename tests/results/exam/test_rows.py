"""Each row of an exam is a bug switch, a planted defect, or a profile without defects."""

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.registry import load_plugin
from harness.soak.planting import load_defects, planted
from results.exam.bugs_page import bugs_page
from results.exam.rows import CLEAN, DEFECT, SWITCH, make_paper
from targets.kudu.master import leadership

DOCS = Path(__file__).parents[3] / "docs"
MADE = "tests.results.exam.made"


def paper(*parts, targets=("kudu",), only=None, defects=None):
    return make_paper(
        parts=parts,
        targets=targets,
        only=only,
        defects=defects,
        seeds=range(1, 31),
        clean_seeds=range(1, 3),
        first=True,
    )


@pytest.mark.parametrize("target", ["kudu", "hive"])
def test_every_switch_has_a_row_and_one_that_no_soak_finds_has_a_reason(target):
    switches = load_plugin("targets", target).switches()
    rows = paper(SWITCH, targets=(target,)).rows
    assert [row.name for row in rows] == [switch.id for switch in switches]
    for row in rows:
        assert (row.case is None) == (row.seeds == range(0)) == (row.reason != ""), row.name
        assert row.case is None or row.name in row.case.bugs


def test_a_row_with_a_second_switch_accepts_the_checker_of_its_ledger_only():
    rows = {row.name: row for row in paper(SWITCH).rows}
    assert rows["CATCH-UP-EXIT"].accepted == "crash"
    assert rows["KUDU-765"].accepted is None


def test_a_target_without_a_ledger_has_its_bugs_sought_by_bare_soaks(monkeypatch):
    target = load_plugin("targets", "toy-register")
    monkeypatch.setattr(target, "bugs", {"NO-FSYNC": "answers before it syncs"})
    (switch,) = target.switches()
    assert (switch.id, switch.options) == ("NO-FSYNC", "")


def test_planted_defects_are_rows_of_their_own():
    rows = paper(DEFECT, defects=MADE).rows
    assert [(row.name, row.defect, row.reason) for row in rows] == [
        ("harmless", f"{MADE}:harmless", "harmless"),
        ("no-leader", f"{MADE}:no-leader", ""),
    ]
    assert all(row.case.time_limit_s == 2.0 for row in rows)


def test_clean_rows_are_profiles_with_workloads_and_stop_at_nothing():
    made = paper(CLEAN, targets=("hive",))
    profiles = load_plugin("targets", "hive").profiles
    assert {row.case.profile for row in made.rows} == {*profiles}
    assert {row.case.workload for row in made.rows} == {"hms-ddl", "hms-events", "hms-tokens"}
    assert not any(row.first or row.case.bugs for row in made.rows)


def test_refusals_of_the_simulation_are_listed_with_reasons():
    made = paper(CLEAN, targets=("http-register",))
    assert made.rows == ()
    assert made.refused


def test_names_restrict_the_rows():
    made = paper(SWITCH, DEFECT, only=("KUDU-765", "no-leader"), defects=MADE)
    assert [row.name for row in made.rows] == ["KUDU-765", "no-leader"]
    with pytest.raises(UsageError, match="KUDU-766"):
        paper(SWITCH, only=("KUDU-766",))


def test_a_defect_is_planted_for_a_block_only():
    before = leadership.Leadership.__init__
    with planted(f"{MADE}:no-leader"):
        assert leadership.Leadership.__init__ is not before
    assert leadership.Leadership.__init__ is before
    with planted(None):
        assert leadership.Leadership.__init__ is before


@pytest.mark.parametrize("place", [f"{MADE}:no-leadr", "no.such.module:x", "harness.errors:x"])
def test_a_defect_that_does_not_exist_is_a_usage_error(place):
    with pytest.raises(UsageError), planted(place):
        pytest.fail("planted")


def test_mutants_of_the_suite_are_planted_defects():
    defects = load_defects("tests.mutants")
    assert all(defect.title for defect in defects.values())
    assert any(defect.unfound for defect in defects.values())


def test_the_page_of_bugs_is_made_from_the_ledgers():
    text = (DOCS / "bugs.md").read_text(encoding="utf-8")
    command = "harness exam --target kudu,hive --bugs-page docs/bugs.md"
    assert text == bugs_page(["kudu", "hive"]), f"run `{command}`"
