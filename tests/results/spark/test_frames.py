"""A lake's tables as DataFrames have the rows of a snapshot, on driver and executors."""

import datetime as dt

import pytest

from harness.errors import UsageError
from results.spark.frames import lake_frame
from tests.results.lake.toy import SCHEMAS, lake_at, rows
from tests.support.object_store import BUCKET, options_for, s3_server
from tests.support.spark_session import spark_test

pytestmark = pytest.mark.lake


@pytest.fixture(scope="module")
def spark():
    from results.spark.session import get_spark

    return get_spark("local[2]")


def found(frame):
    """Return the rows, in any order."""
    return sorted(map(repr, frame.toArrow().to_pylist()))


def expected(snapshot, table):
    return sorted(map(repr, snapshot.dataset(table).to_table().to_pylist()))


def filled(uri, **options):
    """Build a lake of two partitions, of which one has no label, and a batch of a dead writer."""
    lake = lake_at(uri, **options)
    lake.append(rows(["a1", "a2", "a3"]))
    lake.append(rows(["b1"], label=None, day=dt.date(2026, 1, 2)))
    main, lake.main.commit = lake.main.commit, None
    with pytest.raises(TypeError):
        lake.append(rows(["dead"]))
    lake.main.commit = main
    return lake


@spark_test
def test_frames_have_the_rows_of_a_snapshot(spark, tmp_path):
    lake = filled(tmp_path / "a [lake] {of} * x?")
    snapshot = lake.snapshot()
    lake.append(rows(["later"]))

    for table in SCHEMAS:
        frame = lake_frame(spark, snapshot, table)
        assert found(frame) == expected(snapshot, table)
    runs = lake_frame(spark, snapshot, "runs", columns=["run", "day"])
    assert found(runs) == found(lake_frame(spark, snapshot, "runs").select("run", "day"))
    assert sorted(row["run"] for row in runs.toArrow().to_pylist()) == ["a1", "a2", "a3", "b1"]


@spark_test
def test_frames_of_an_empty_lake_have_its_columns(spark, tmp_path):
    snapshot = lake_at(tmp_path / "lake").snapshot()
    for table in SCHEMAS:
        frame = lake_frame(spark, snapshot, table)
        assert frame.columns == snapshot.schemas[table].names
        assert found(frame) == []


@spark_test
@pytest.mark.s3
def test_executors_read_an_object_store_with_no_jar(spark):
    with s3_server() as endpoint:
        lake = filled(f"s3://{BUCKET}/lake", storage_options=options_for(endpoint))
        snapshot = lake.snapshot()
        for table in SCHEMAS:
            assert found(lake_frame(spark, snapshot, table)) == expected(snapshot, table)


# --- without Spark --------------------------------------------------------------------------------


def test_unknown_columns_are_refused(tmp_path):
    snapshot = lake_at(tmp_path / "lake").snapshot()
    with pytest.raises(UsageError, match="runs has no column 'nose'; it has target"):
        lake_frame(None, snapshot, "runs", columns=["nose"])
