"""The jobs in docs/lake.md run without the harness, and give the same results as `results.open`."""

import random
import re
from pathlib import Path

import duckdb
import numpy as np
import pytest

import results
from harness.case import Case
from harness.errors import InfrastructureError
from harness.ops import NEMESIS, History, Op, OpType, Verdict
from harness.verdict.signature import Failure
from results.lake.log import lake as lake_module
from results.lake.log.lake import Lake
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import ingest
from results.lake.upkeep.compaction import compact
from tests.support.run_folders import keep_run
from tests.support.spark_session import spark_test

pytestmark = pytest.mark.lake

PAGE = Path(__file__).parents[3] / "docs" / "lake.md"
KINDS = ("cut", "kill", "pause")
NEMESES = (("kill-leader",), ("kill-leader", "pause-leader"), ("none",))
LINES_MAX = 16
"""Maximum number of lines of a job, without imports."""


def job(word):
    """Return the only Python block of the page that contains this word."""
    (found,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if word in block
    ]
    return found


def history(seed):
    """Build creates whose times often coincide with the begin or end of a fault."""
    draw = random.Random(seed)
    lines = []
    for number in range(5):
        start, fault = draw.randrange(100), f"f{number}"
        value = {"fault": fault, "targets": ["m1"], "kind": draw.choice(KINDS), "note": "hit"}
        lines.append((start, NEMESIS, OpType.INFO, "any", {**value, "action": "inject"}))
        if number:  # leave the first fault unhealed
            heal = {"action": "heal", "fault": fault}
            lines.append((start + draw.randrange(1, 60), NEMESIS, OpType.INFO, "any", heal))
    for number in range(40):
        start, f = draw.randrange(100), draw.choice(("create", "create", "get"))
        kind = draw.choice((OpType.OK, OpType.OK, OpType.FAIL, OpType.INFO))
        lines.append((start, number, OpType.INVOKE, f, {"name": f"t{number}"}))
        lines.append((start + draw.randrange(1, 10**6), number, kind, f, {"result": "ok"}))
    lines.sort(key=lambda line: (line[0], line[2] is not OpType.INVOKE))
    return History(Op(index, *line) for index, line in enumerate(lines))


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Build a lake of six runs on two days, and rows of a seventh run whose writer died."""
    place = tmp_path_factory.mktemp("docs")
    lake = Lake.open(str(place / "lake"), create=True)
    for seed in range(8):
        store = place / f"store{seed % 4}"
        invalid = seed % 4 == 1
        keep_run(
            store, "n", f"r{seed}", Case(seed=seed, nemeses=NEMESES[seed % 3]), history(seed),
            verdict=Verdict.INVALID if invalid else Verdict.VALID,
            failure=Failure("x", "y", "z") if invalid else None,
            started=f"2026-11-0{1 + seed % 2}T00:00:00+00:00",
        )  # fmt: skip
    for number in range(3):
        ingest(place / f"store{number}", lake, writer_to(lake))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_module, "ROUNDS_MAX", 1)
        patch.setattr(lake, "_commit_main", lambda *_: False)
        with pytest.raises(InfrastructureError):
            ingest(place / "store3", lake, writer_to(lake))
    assert len(lake.logs["operations"].refresh().files) > len(lake.files("operations"))
    return lake


def expected(uri):
    """Compute the answers by hand, from the tables of `results.open`."""
    tables = results.open(uri)
    runs, operations, faults = (
        tables.table(name).arrow().to_table().to_pylist()
        for name in ("runs", "operations", "faults")
    )
    took = {}
    for op in operations:
        if (op["f"], op["type"]) == ("create", "ok"):
            kinds = {
                fault["kind"]
                for fault in faults
                if fault["run"] == op["run"]
                and fault["start_ns"] <= op["invoke_ns"]
                and (fault["end_ns"] is None or op["invoke_ns"] < fault["end_ns"])
            }
            for kind in kinds:
                took.setdefault((op["day"], kind), []).append(op["latency_ns"])
    p99 = [
        (day, kind, len(found), round(float(np.percentile(found, 99)) / 1e6, 3))
        for (day, kind), found in sorted(took.items())
    ]
    by_nemesis = {}
    for run in runs:
        for nemesis in run["nemeses"].split("+"):
            by_nemesis.setdefault(nemesis, []).append(run["verdict"] == "invalid")
    broken = [(name, len(bad), sum(bad) / len(bad)) for name, bad in sorted(by_nemesis.items())]
    return p99, broken


def by_duckdb(uri):
    found = {"LAKE": uri}
    with duckdb.connect() as con, pytest.MonkeyPatch.context() as patch:
        for name in ("register", "sql"):
            patch.setattr(duckdb, name, getattr(con, name))
        exec(compile(job("import duckdb"), str(PAGE), "exec"), found)
        return found["p99"].fetchall(), found["broken"].fetchall()


def by_spark(uri, session):
    found = {"LAKE": uri, "spark": session}
    exec(compile(job("pyspark"), str(PAGE), "exec"), found)
    p99, broken = (sorted(map(tuple, found[name].collect())) for name in ("p99", "broken"))
    return p99, broken


@pytest.fixture(scope="module", params=["as appended", "compacted"])
def uri(request, lake):
    if request.param == "compacted":
        assert [item.files_after for item in compact(lake) if item.table == "runs"] == [2]
    return lake.place.uri


def close(found, wanted):
    """Assert that rows are equal, except for the last digit of percentiles."""
    assert [row[:3] for row in found[0]] == [row[:3] for row in wanted[0]]
    assert [row[3] for row in found[0]] == pytest.approx([row[3] for row in wanted[0]], abs=0.0011)
    assert found[1] == wanted[1]


def test_on_duckdb(uri):
    wanted = expected(uri)
    assert len(wanted[0]) == 6  # three kinds of operations on two days
    assert any(0 < rate < 1 for _, _, rate in wanted[1])
    close(by_duckdb(uri), wanted)


@spark_test
def test_on_spark(uri):
    from results.spark.session import get_spark

    close(by_spark(uri, get_spark("local[2]")), expected(uri))


@pytest.mark.parametrize("word", ["import duckdb", "pyspark"])
def test_they_are_short_and_know_nothing_of_ours(word):
    lines = job(word).splitlines()
    assert len([line for line in lines if line and "import" not in line]) <= LINES_MAX
    assert not re.search(r"^(from|import) (harness|results)", job(word), re.MULTILINE)
