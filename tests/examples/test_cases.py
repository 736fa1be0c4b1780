"""The supplied cases are valid, and produce the events that they demonstrate."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from harness.case import Case, load_case
from harness.ops import OpType
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from harness.timeline import faults_of
from harness.vocabularies import ddl
from tests.support.cases import convicting, simulated

FOLDER = Path(__file__).parents[2] / "examples" / "cases"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
ROWS = {"write", "read", "scan"}
SHORT = ("large-tables", "majority-down", "minority-down", "single-master-paused")


def run(name, seed):
    case = msgspec.structs.replace(load_case(FOLDER / f"{name}.json"), seed=seed)
    done = simulated(case)
    judgement = done.judgement(time_limit_s=300)
    assert judgement.verdict == "valid", (convicting(judgement), judgement.results)
    return done.history


def within(history, nemesis):
    windows = [
        (fault.begin.time, fault.heal.time)
        for fault in faults_of(history)
        if nemesis in fault.nemesis and fault.heal is not None
    ]
    assert windows
    return [
        pair
        for pair in history.pairs
        for begin, end in windows
        if pair.completion and begin < pair.invoke.time and pair.completion.time < end
    ]


def acknowledged(pairs, functions):
    return [pair for pair in pairs if pair.type is OpType.OK and pair.invoke.f in functions]


def masters_at_the_end(history):
    return sorted(history.facts("snapshot")[-1].value["masters"])


def elections(history):
    assert len(history.leaders()) > 100
    assert len(acknowledged(history.pairs, ddl.MUTATIONS)) > 2000


def minority(history):
    done = within(history, "kill minority")
    for f in (*ddl.MUTATIONS, "get", "list", *ROWS):
        assert acknowledged(done, {f}), f


def majority(history):
    done = within(history, "kill majority")
    assert not acknowledged(done, ddl.MUTATIONS)
    assert acknowledged(done, {"write"})


def single(history):
    done = within(history, "node:m1")
    assert not acknowledged(done, ddl.MUTATIONS)
    served = [pair for pair in done if pair.invoke.f in ROWS]
    # the others fail, because new clients do not know the locations of any tablets
    assert len(acknowledged(served, ROWS)) > len(served) / 2


def migrated(history):
    assert masters_at_the_end(history) == ["m1", "m4", "m5"]


def replaced(history):
    assert masters_at_the_end(history) == ["m2", "m3", "m4"]


def large(history):
    tablets = [
        pair.completion.value.get("tablets", ())
        for pair in history.pairs
        if pair.invoke.f == "locate" and pair.type is OpType.OK
    ]
    assert max(map(len, tablets)) > 30


EVENTS = {
    "elections": elections, "large-tables": large, "majority-down": majority,
    "migration": migrated, "migration-cut": migrated, "migration-killed": migrated,
    "minority-down": minority, "replaced-master": replaced,
    "single-master-killed": single, "single-master-paused": single,
}  # fmt: skip


def test_every_case_is_described_and_tested():
    described = re.findall(r"^\| (`.*`) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(described))) == NAMES
    assert sorted(EVENTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_case_can_be_planned_and_says_no_more_than_it_needs(name):
    case = load_case(FOLDER / f"{name}.json")
    assert plan_case(case, load_plugin("environments", "sim")).case.faults
    fields = json.loads((FOLDER / f"{name}.json").read_text())
    default = Case(seed=1)
    assert {field for field in fields if getattr(case, field) == getattr(default, field)} <= {
        "seed", "workload", "time_limit_s",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_short_case_is_valid_and_its_events_happen(name):
    EVENTS[name](run(name, seed=1))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_valid_and_its_events_happen(name, seed):
    EVENTS[name](run(name, seed))
