"""Answers about many runs, such as survival curves, pooled ratios and failures by day."""

import itertools
import math
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.facts.extraction import extract
from results.questions.engines import DuckEngine, query
from results.questions.failures import changes, detection, signatures
from results.questions.trends import costs, trends
from results.statistics.estimates import Sums, wilson
from results.statistics.strata import pooled_ratio
from results.statistics.survival import found_within, kaplan_meier, seeds_for
from tests.results.report.histories import Script, run_of
from tests.results.report.oracle_at_scale import mantel_haenszel, pooled_log_se
from tests.tiers import examples

# --- survival ------------------------------------------------------------------------------------

REMISSION = [(6, 3), (7, 1), (10, 1), (13, 1), (16, 1), (22, 1), (23, 1)]
CENSORED = (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)
"""Freireich et al., 1963: weeks of remission of 21 children under 6-mercaptopurine."""


def test_kaplan_and_meier_of_the_textbook():
    """All numbers equal those of Kleinbaum and Klein, and of R."""
    cells = [(at, n, 0) for at, n in REMISSION] + [(at, 0, 1) for at in CENSORED]
    steps = kaplan_meier(cells)

    assert [(step.at, step.at_risk, step.failed) for step in steps] == [
        (6, 21, 3), (7, 17, 1), (10, 15, 1), (13, 12, 1), (16, 11, 1), (22, 7, 1), (23, 6, 1),
    ]  # fmt: skip
    shares = [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert [step.survival for step in steps] == pytest.approx(shares, abs=5e-5)
    assert steps[0].interval == pytest.approx((0.620, 0.952), abs=5e-4)
    assert steps[4].interval == pytest.approx((0.368, 0.805), abs=5e-4)
    assert steps[-1].interval == pytest.approx((0.188, 0.680), abs=5e-4)


lives = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=25)


@given(lives)
def test_survival_is_a_product_over_moments(lives):
    steps = kaplan_meier((at, int(bad), int(not bad)) for at, bad in lives)

    assert [step.at for step in steps] == sorted({at for at, bad in lives if bad})
    for step in steps:
        left = 1.0
        for moment in {at for at, bad in lives if bad and at <= step.at}:
            at_risk = sum(at >= moment for at, _ in lives)
            left *= 1 - sum(at == moment and bad for at, bad in lives) / at_risk
        assert step.survival == pytest.approx(left)
        if step.interval is None:
            assert step.survival == 0
        else:
            assert 0 <= step.interval.low <= step.survival <= step.interval.high <= 1


# --- how many seeds find a failure ---------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 200), st.data())
def test_seeds_find_what_a_binomial_finds(runs, seeds, data):
    hits = data.draw(st.integers(0, runs))
    found = found_within(seeds, hits, runs)
    low, high = wilson(hits, runs)

    assert found.probability == pytest.approx(1 - (1 - hits / runs) ** seeds)
    assert (found.low, found.high) == pytest.approx(
        (1 - (1 - low) ** seeds, 1 - (1 - high) ** seeds)
    )
    assert found.low <= found.probability <= found.high


@given(st.floats(1e-4, 0.999), st.sampled_from([0.5, 0.95]))
def test_so_many_seeds_are_enough_and_one_fewer_is_not(share, sure):
    seeds = seeds_for(share, sure=sure)

    assert 1 - (1 - share) ** seeds >= sure - 1e-9
    assert seeds == 1 or 1 - (1 - share) ** (seeds - 1) < sure + 1e-9
    assert seeds_for(0.0) is None
    assert seeds_for(1.0) == 1


# --- pooled ratios over strata -------------------------------------------------------------------

counts = st.tuples(
    st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)
).map(lambda row: (min(row[0], row[1]), row[1], min(row[2], row[3]), row[3]))
stratum = st.lists(counts, min_size=2, max_size=8)


def usable(rows):
    own = [row for row in rows if row[1] or row[3]]
    return len(own) > 1 and sum(row[1] for row in own) and sum(row[3] for row in own)


@given(st.lists(stratum, min_size=2, max_size=4))
def test_pooled_ratios_are_mantels_and_haenszels(strata):
    strata = [[row for row in rows if row[1] or row[3]] for rows in strata]
    own = [rows for rows in strata if usable(rows)]
    found = pooled_ratio([Sums.of(rows) for rows in strata])

    assert found.strata == len(own)
    assert found.runs == sum(map(len, own))
    above, below = mantel_haenszel(own) if own else (0, 0)
    if not below:
        assert found.ratio is None
        return
    assert found.ratio == pytest.approx(above / below)
    if above:
        low, high = (math.log(end) for end in found.interval)
        assert (low + high) / 2 == pytest.approx(math.log(above / below), abs=1e-6)
        spread = pooled_log_se(own)
        assert (high - low) / 2 >= 1.959 * spread - 1e-3
        if found.runs - found.strata > 1:
            assert (high - low) / 2 <= 4.4 * spread + 1e-3


def test_disagreeing_strata_are_reported():
    chance = random.Random(3)
    strata = [
        [(chance.randint(a, a + 4), 40, chance.randint(4, 8), 40) for _ in range(30)]
        for a in (2, 24)
    ]
    assert pooled_ratio([Sums.of(rows) for rows in strata]).agree_p < 1e-6
    assert pooled_ratio([Sums.of(strata[0]), Sums.of(strata[0])]).agree_p == pytest.approx(1.0)


# --- failures ------------------------------------------------------------------------------------


def cell(population, setting, runs, place, of, signature="c · r · cut · get", **more):
    """Build a row of `signature_cells`: failures of a population with this signature.

    The last failing run is run number `place` among the `of` runs in its setting.
    """
    day, run = f"2026-01-0{place % 9 + 1}", f"n/{population}"
    return {
        "verdict": "invalid", "target": "kudu", "bugs": "", "environment": "sim",
        "signature": signature, "checker": "c", "rule": "r", "reason": "why",
        "population": population, "setting": setting, "runs": runs, "setting_runs": of,
        "first_run": run, "first_seed": population, "first_code": "a",
        "first_started": "2026-01-01T", "first_day": "2026-01-01",
        "last_run": run, "last_place": place, "last_code": "b",
        "last_started": f"{day}T", "last_day": day, **more,
    }  # fmt: skip


def test_runs_since_a_failure_are_of_its_settings_whatever_the_label():
    """In s1, three runs followed the last failure (7 of 10); in s2, four followed (1 of 5)."""
    cells = [cell(1, "s1", 2, 3, 10), cell(2, "s1", 1, 7, 10), cell(3, "s2", 1, 1, 5)]
    (row,) = signatures(cells, ["2026-01-09", None]).to_pylist()

    assert (row["runs"], row["populations"], row["runs_since"]) == (4, "1+2+3", 7)
    assert (row["last_day"], row["days_since"]) == ("2026-01-08", 1)
    assert row["below_since"] == pytest.approx(1 - 0.05 ** (1 / 7))


def test_operations_are_counted_inside_a_signature():
    cells = [cell(1, "s", 2, 3, 10), cell(1, "s", 5, 7, 10, "c · r · cut · list")]
    (row,) = signatures([*cells, cell(2, "s", 1, 4, 10, "c · r · cut")], [None]).to_pylist()

    assert (row["signature"], row["runs"]) == ("c · r · cut", 8)
    assert (row["shapes"], row["runs_since"]) == ("list 5, get 2", 3)


def test_a_failure_of_runs_without_a_time_has_no_day():
    cells = [cell(1, "s", 1, 1, 1, first_started=None, last_started=None)]
    (row,) = signatures(cells, [None]).to_pylist()

    assert (row["first_day"], row["last_day"], row["days_since"]) == (None, None, None)
    assert row["below_since"] == 1.0


def population(number, setting, label, runs):
    return {"population": number, "setting": setting, "label": label, "runs": runs}


OLD_AND_NEW = [population(1, "s", "old", 40), population(2, "s", "new", 40)]


def changed(cells, populations=OLD_AND_NEW):
    return changes(cells, populations, baseline="old", label="new").to_pylist()


def test_new_gone_and_known_failures_beyond_chance():
    cells = [
        cell(2, "s", 20, 1, 80, "c · one"),
        cell(1, "s", 1, 1, 80, "c · two"),
        cell(1, "s", 30, 1, 80, "c · three", rule="r3"),
        cell(2, "s", 3, 1, 80, "c · three", rule="r3"),
    ]
    rows = {row["signature"]: row for row in changed(cells)}

    assert {name: (row["change"], row["says"]) for name, row in rows.items()} == {
        "c · r": ("known", "more often"),  # 1 of 40 runs, then 20 of 40
        "c · one": ("new", "more than chance"),
        "c · two": ("gone", "may be chance"),
        "c · three": ("known", "less often"),
    }
    assert [rows["c · one"][name] for name in ("baseline_hits", "label_hits")] == [0, 20]
    assert rows["c · r"]["level"] == "rule"


def test_a_failure_of_a_setting_that_only_one_label_has_is_not_compared():
    populations = [*OLD_AND_NEW, population(3, "other", "old", 9)]
    (row,) = changed([cell(3, "other", 9, 1, 9)], populations)

    assert (row["change"], row["p_value"], row["label_runs"]) == ("gone", 1.0, 0)
    assert row["says"] == "no run of such a setting in new"


def test_failures_of_a_third_label_are_no_change():
    assert changed([cell(3, "s", 1, 1, 9)], [*OLD_AND_NEW, population(3, "s", "third", 9)]) == []


EVIDENCE = {"more than chance", "more often", "less often"}


def test_equal_runs_are_rarely_a_change():
    chance = random.Random(5)
    false = 0
    for _ in range(200):
        cells = []
        for number, side in itertools.product(range(4), (1, 2)):
            hits = sum(chance.random() < 0.1 for _ in range(40))
            if hits:
                cells.append(cell(side, "s", hits, 1, 80, f"c · {number}", rule=f"r{number}"))
        false += any(row["says"] in EVIDENCE for row in changed(cells))
    assert false <= 10


def test_detection_counts_invalid_runs_and_all_failures_together():
    cells = [
        cell(1, "s", 3, 1, 10, "a"), cell(1, "s", 1, 1, 10, "b"), cell(2, "s", 5, 1, 9, "a"),
        cell(2, "s", 2, 1, 9, "doubt", verdict="unknown"),
    ]  # fmt: skip
    table, curves = detection(cells, [population(1, "s", "x", 10), population(2, "s", "y", 20)])

    assert [(r["population"], r["signature"], r["hits"], r["runs"]) for r in table.to_pylist()] == [
        (1, "any failure", 4, 10), (1, "a", 3, 10), (1, "b", 1, 10), (2, "a", 5, 20),
    ]  # fmt: skip
    assert {row["seeds"] for row in curves.to_pylist()} >= {1, 10, 1_000}


# --- repeated cases ------------------------------------------------------------------------------


def judged(**columns):
    """Run the queries about repeated cases over a table `judged` that has these rows."""
    base = {"population": 1, "setting": "s", "code": "c", "environment": "sim", "verdict": "valid"}
    rows = [
        {**base, **dict(zip(columns, values, strict=True)), "run": f"r{number}"}
        for number, values in enumerate(zip(*columns.values(), strict=True))
    ]
    engine = DuckEngine()
    engine.take("judged", pa.Table.from_pylist(rows))
    found = [engine.sql(query(name)).to_pylist() for name in ("flakes", "repeated_cases")]
    engine.close()
    return found


def test_another_verdict_of_a_case_is_a_flake():
    flakes, (again,) = judged(
        seed=[1, 1, 1, 2, 2],
        verdict=["valid", "invalid", "unknown", "valid", "valid"],
        digest="aaabb",
    )
    (flake,) = flakes

    assert {name: flake[name] for name in ("differs", "seed", "runs", "held", "invalid")} == {
        "differs": "verdict", "seed": 1, "runs": 3, "held": 1, "invalid": 1,
    }  # fmt: skip
    assert (flake["run"], flake["last_run"]) == ("r0", "r2")
    assert (again["cases"], again["runs"], again["other_verdicts"]) == (2, 5, 1)


def test_another_history_is_one_in_the_simulation_only():
    flakes, again = judged(
        seed=[1, 1, 2, 2], digest="abab", environment=["sim", "sim", "docker", "docker"]
    )

    assert [(row["differs"], row["environment"]) for row in flakes] == [("history", "sim")]
    assert [row["other_histories"] for row in again] == [1, 1]


def test_other_code_another_setting_or_seed_is_another_case():
    flakes, again = judged(
        seed=[1, 1, 1, 2, 9, 9], code=["a", "b", "a", "a", None, None], digest="abcdef",
        setting=["s", "s", "t", "s", "s", "s"], verdict=["valid", "invalid"] * 3,
    )  # fmt: skip
    assert (flakes, again) == ([], [])


# --- roles ---------------------------------------------------------------------------------------


def roles(tell):
    script = Script()
    tell(script)
    found = extract(run_of(), script.history())["exposure_by_role"].to_pylist()
    return [tuple(row[name] for name in ("nemesis", "phase", "role", "n", "bad")) for row in found]


def test_a_role_is_that_of_what_the_fault_hit_when_it_was_injected():
    def tell(script):
        script.phase(0, "chaos")
        script.inject(1, "cut", "f0", targets=("m1",))  # no leader was seen yet
        script.do(2, 3)
        script.heal(4, "cut", "f0")
        script.fact(5, "leader", node="m1", term=1)
        script.inject(6, "cut", "f1", targets=("m1", "m2"))
        script.fact(7, "leader", node="m3", term=2)  # so m1 no longer leads when f2 begins
        script.do(8, 9, "fail")
        script.heal(10, "cut", "f1")
        script.inject(11, "cut", "f2", targets=("m1",))
        script.do(12, 13)
        script.do(13, 14, "info")
        script.heal(15, "cut", "f2")
        script.do(16, 17, "fail")
        script.phase(18, "heal-core")
        script.do(19, 20)
        script.phase(21, "converge")
        script.do(22, 23, "fail")

    assert roles(tell) == [
        ("cut", "chaos", None, 1, 1),
        ("cut", "chaos", "leader", 1, 1),
        ("cut", "chaos", "other", 2, 1),
        ("cut", "chaos", "unknown", 1, 0),
        ("cut", "heal-core", None, 1, 0),
    ]


def test_an_operation_under_two_faults_counts_for_both_and_a_miss_for_none():
    def tell(script):
        script.fact(0, "leader", node="m1", term=1)
        script.phase(0, "chaos")
        script.inject(1, "cut", "f1", targets=("m1",))
        script.inject(1, "cut", "f2", targets=("m2",))
        script.inject(1, "kill", "f3", targets=())
        script.do(2, 3, "fail")
        script.phase(4, "heal-core")
        script.do(5, 6)

    assert roles(tell) == [
        ("cut", "chaos", "leader", 1, 1),
        ("cut", "chaos", "other", 1, 1),
        ("cut", "heal-core", "leader", 1, 0),
        ("cut", "heal-core", "other", 1, 0),
    ]


def test_without_a_fault_there_is_nothing_to_compare():
    assert roles(lambda script: (script.phase(0, "chaos"), script.do(1, 2))) == []


# --- sums ----------------------------------------------------------------------------------------


def trend(day, code, **sums):
    found = dict.fromkeys(("valid", "permitted", "unknown", "invalid", "ops", "ok", "length_ns"), 0)
    found |= {"mutation_down_ns": 0, "read_down_ns": 0, "runs": 0, "population": 1}
    return {**found, "day": day, "code": code, "first_started": day or "", **sums}


def test_trends_add_up_and_leave_out_runs_that_do_not_tell():
    cells = [
        trend("2026-01-02", "b", runs=4, invalid=1, unknown=2, ok=30, length_ns=10**10),
        trend("2026-01-02", "a", runs=2, invalid=1, ok=10, length_ns=10**10),
        trend("2026-01-03", "a", runs=1, unknown=1),
        trend(None, None, runs=5, invalid=5),
    ]
    days, codes = (trends(cells, [], name).to_pylist() for name in ("day", "code"))

    assert [(row["day"], row["runs"], row["rate"]) for row in days] == [
        ("2026-01-02", 6, 0.5), ("2026-01-03", 1, None),
    ]  # fmt: skip
    assert days[0]["ok_per_s"] == 2.0
    assert (days[1]["low"], days[1]["high"], days[1]["ok_per_s"]) == (0.0, 1.0, None)
    assert [(row["code"], row["runs"]) for row in codes] == [("a", 3), ("b", 4)]


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["k", "p", "k+p", ""]), st.integers(1, 9)),
        min_size=1,
        max_size=8,
    )
)
def test_bytes_are_those_of_the_lake_once(parts):
    cells = [
        {"target": "t", "label": label, "day": "d", "profile": "s", "nemeses": nemeses, "runs": n,
         "timed": n, "wall_ns": n, "cpu_ns": n, "length_ns": n, "ops": n, "lines": n}
        for label, nemeses, n in parts
    ]  # fmt: skip
    stored = {("t", label, "d"): 10**9 for label, _, _ in parts}
    rows = costs(cells, stored).to_pylist()
    by = {(row["by"], row["value"]): row for row in rows}

    assert by["all", "all runs"]["bytes"] == sum(stored.values())
    for label in {label for label, _, _ in parts}:
        assert by["label", label]["bytes"] == 10**9
    several = [((nemeses or "no nemesis").split("+"), n) for _, nemeses, n in parts]
    for nemesis in {name for names, _ in several for name in names}:
        own = sum(n for names, n in several if nemesis in names)
        assert by["nemesis", nemesis]["runs"] == own
    assert by["all", "all runs"]["share"] == 1.0
