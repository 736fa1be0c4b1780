"""`results.open` opens the tables of a lake, or of a store through its lake."""

import datetime as dt
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import duckdb
import pandas as pd
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import results
from harness.errors import UsageError
from harness.store import load_run
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import Patience
from results.lake.tables.schema import schemas
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import ingest
from results.lake.upkeep.compaction import compact
from tests.results.serve.stores import HOSTILE, add_run, small_store
from tests.support.object_store import BUCKET, options_for, s3_server
from tests.support.spark_session import spark_test
from tests.tiers import examples

BROKEN = {"poison/torn", "poison/rotten", "poison/linked"}
QUICK = Patience(sleep=lambda _: None)


def lake_at(uri, **options):
    return Lake.open(str(uri), patience=QUICK, **options, create=True)


def ingested(store, uri, **options):
    lake = lake_at(uri, **options)
    ingest(store, lake, writer_to(lake))
    return uri


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("opened") / "store")


@pytest.fixture(scope="module")
def opened(store):
    with pytest.warns(UserWarning, match="runs of .* left out"):
        return results.open(store)


def rows(table, **options):
    """Sort rows independently of files."""
    return sorted(table.to_table(**options).to_pylist(), key=repr)


@pytest.mark.lake
def test_a_store_is_opened_through_its_lake(store, opened, tmp_path):
    lake = results.open(ingested(store, tmp_path / "lake"))
    assert opened.tables == lake.tables == tuple(schemas())
    finished = opened.only(runs=lake.table("runs").pandas(["run"])["run"])
    for name in lake.tables:
        assert opened.table(name).schema == lake.table(name).schema == schemas()[name]
        here, there = rows(finished.table(name).arrow()), rows(lake.table(name).arrow())
        if name == "runs":
            assert {row.pop("folder") for row in here} == {None}
            # `None`, and the folders of the three runs that are not valid
            assert len({row.pop("folder") for row in there}) == 4
        assert here == there
        assert here or name in {"attempts", "events"}
    assert (set(opened.problems), dict(lake.problems)) == (BROKEN, {})
    states = opened.table("runs").pandas(["state"])["state"]
    assert set(states) >= {"finished", "torn"}


@pytest.mark.parametrize(
    ("draw", "texts"),
    [
        (lambda runs: runs.latency(), ("get · v1", "p50", "p99", "Latency of operations by")),
        (lambda runs: runs.latency(["during"], where="is_read"), ("no fault",)),
        (lambda runs: runs.availability(), ("no fault", "reads", "mutations", "100 %")),
        (lambda runs: runs.timeline("alpha/a1"), ("Completions", "a fault is active", " ok, ")),
    ],
)
def test_a_drawing_is_html_with_its_style(opened, draw, texts):
    drawing = draw(opened)
    html = drawing._repr_html_()
    assert drawing.title in repr(drawing)
    assert [text for text in texts if text not in html] == []
    assert html.count("<rect") + html.count("<circle") > 0
    # styles of `:root` would affect other drawings on the notebook's page
    assert ":root" not in html
    assert "<script" not in html
    ET.fromstring(html.replace("</style>", "]]></style>").replace("<style>", "<style><![CDATA["))


def test_a_timeline_of_an_unknown_run(opened):
    with pytest.raises(UsageError, match="there is no run 'alpha/z'"):
        opened.timeline("alpha/z")


days = st.dates(dt.date(2026, 11, 19), dt.date(2026, 11, 23))
labels = st.sampled_from(["v1", "v2", None, HOSTILE])


@st.composite
def filters(draw, keys):
    found = {}
    if draw(st.booleans()):
        found["label"] = draw(st.one_of(labels, st.lists(labels, min_size=1)))
    if draw(st.booleans()):
        found["runs"] = draw(st.one_of(st.sampled_from(keys), st.lists(st.sampled_from(keys))))
    if draw(st.booleans()):
        found["target"] = "kudu"
    if draw(st.booleans()):
        first, last = draw(days), draw(days)
        found["day"] = draw(
            st.sampled_from([first, f"{first}", f"{first}..{last}", f"{first}..", f"..{last}"])
        )
    return found


def passes(row, filters):
    """Whether a row passes the filters, computed independently."""
    if "label" in filters:
        wanted = filters["label"]
        if row["label"] not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    if "runs" in filters:
        wanted = filters["runs"]
        if row["run"] not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    if "day" in filters:
        first, dots, last = str(filters["day"]).partition("..")
        last = last if dots else first
        if not (first or "0") <= str(row["day"]) <= (last or "9"):
            return False
    return True


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_filters_against_all_rows(opened, data):
    keys = sorted(row["run"] for row in rows(opened.table("runs").arrow()))
    asked = [data.draw(filters(keys)) for _ in range(data.draw(st.integers(1, 2)))]
    name = data.draw(st.sampled_from(["runs", "operations", "faults", "verdicts"]))
    narrowed = opened
    for one in asked:
        narrowed = narrowed.only(**one)
    expected = [
        row for row in rows(opened.table(name).arrow()) if all(passes(row, one) for one in asked)
    ]
    table = narrowed.table(name)
    assert rows(table.arrow()) == expected
    assert table.arrow().count_rows() == len(expected) == len(table.pandas(["run"]))
    assert table.duckdb(duckdb.connect()).aggregate("count(*)").fetchall() == [(len(expected),)]
    con = narrowed.duckdb()
    counted = con.execute(f"SELECT run, count(*) FROM {name} GROUP BY run ORDER BY run").fetchall()
    assert counted == sorted(
        (run, sum(row["run"] == run for row in expected))
        for run in {row["run"] for row in expected}
    )


def test_histories_are_those_of_the_store(opened, store):
    found = dict(opened.only(label=["v1", "v2"]).histories())
    assert [key.partition("@")[0] for key in found] == [f"alpha/a{n}" for n in (1, 2, 3, 4)]
    for key, history in found.items():
        assert history == load_run(store / key.partition("@")[0]).history


def test_a_data_frame(opened):
    table = opened.table("operations")
    creates = table.pandas(["f", "latency_ns", "day"], where=pc.field("f") == "create")
    assert set(creates["f"]) == {"create"}
    assert {name: str(kind) for name, kind in creates.dtypes.items()} == {
        "f": "category", "latency_ns": "Int64", "day": "datetime64[ms]",
    }  # fmt: skip
    assert creates["latency_ns"].isna().sum() == 8  # the last create of each run is never answered
    rows = len(table.pandas())
    assert len(table.pandas(rows_max=rows)) == rows > 120
    with pytest.raises(UsageError, match=f"has {rows} rows here, and rows_max is {rows - 1}"):
        table.pandas(rows_max=rows - 1)
    with pytest.raises(UsageError, match="has no column 'latency'"):
        table.pandas(["latency"])
    runs = opened.table("runs").pandas()
    assert runs["started"].max() == pd.Timestamp("2026-11-22T13:00:00Z")
    assert "case" not in runs
    assert opened.table("runs").pandas(["case"])["case"].str.startswith("{").all()
    assert (runs["verdict"].dtype, runs["label"].dtype) == ("category", "string")
    assert list(runs["verdict"].cat.categories) == ["invalid", "unknown", "valid"]


@pytest.mark.lake
def test_from_a_row_to_the_folder_and_the_page_of_its_run(store, tmp_path):
    runs = store / "alpha"
    page = runs / "a1" / "report.html"
    page.touch()
    with pytest.warns(UserWarning, match="left out"):
        rows = results.open(store).table("runs").pandas().set_index("id")
    page.unlink()
    assert rows["folder"]["a1"] == str(runs / "a1")
    assert rows["page"].dropna().to_dict() == {"a1": str(page)}
    lake = results.open(ingested(store, tmp_path / "lake")).table("runs").pandas(["folder", "page"])
    assert {Path(folder).is_dir() for folder in lake["folder"].dropna()} == {True}
    assert len(lake["folder"].dropna()) == 3
    assert lake["page"].isna().all()


def test_names_are_lists_and_none_of_them_is_an_empty_list(opened):
    lists = opened.table("runs").pandas(["bugs", "nemeses", "warnings"])
    assert {type(value) for value in lists.to_numpy().ravel()} == {list}
    assert [] in list(lists["bugs"])
    stored = rows(opened.table("runs").arrow(), columns=["nemeses"])
    expected = sorted(row["nemeses"].split("+") if row["nemeses"] else [] for row in stored)
    assert sorted(lists["nemeses"]) == expected
    types = opened.duckdb().sql("SELECT DISTINCT typeof(active) FROM operations").fetchall()
    assert types == [("VARCHAR[]",)]


def test_sums_of_integers_are_integers(opened):
    answer = opened.sql("SELECT verdict, sum(ops) AS ops, avg(ops) AS mean FROM runs GROUP BY ALL")
    assert [str(kind) for kind in answer.dtypes] == ["category", "Int64", "Float64"]
    assert answer["ops"].sum() == opened.table("operations").arrow().count_rows()
    local = answer.dropna()
    assert len(opened.sql("SELECT ops FROM local")) == len(local)


def test_runs_describe_themselves(opened, store):
    for text in (repr(opened), opened._repr_html_().replace("</th><td>", ": ")):
        assert str(store) in text
        assert "runs: 9" in text
        assert "verdicts: valid 4, invalid 2, none 2 and unknown 1" in text
        assert "operations 161" in text
    assert "<script" not in opened._repr_html_()  # the hostile label is escaped
    assert "labels: v1 2\n" in repr(opened.only(label="v1"))
    assert repr(opened.table("faults")) == f"Table 'faults' of '{store}': 8 rows"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"label": "v3"}, "there is no label 'v3'; there are none, "),
        ({"target": "kudo"}, "there is no target 'kudo'; there are kudu"),
        ({"runs": ["alpha/a1"]}, "there is no run 'alpha/a1'; "),
        ({"runs": [7]}, "runs is 7"),
        ({"day": "today"}, "day is 'today'"),
        ({"day": ".."}, "day is '..'"),
        ({"day": "2026-11-31.."}, "day is '2026-11-31..'"),
        ({"workload": "ddl"}, "there is no filter 'workload'; there are runs, target, label, day"),
    ],
)
def test_bad_filters(opened, wanted, text):
    with pytest.raises(UsageError) as told:
        opened.only(**wanted)
    assert text in str(told.value)


def test_unknown_tables(opened):
    with pytest.raises(UsageError, match="there is no table 'ops'; there are runs, operations"):
        opened.table("ops")


@pytest.mark.lake
def test_a_snapshot_is_immutable(tmp_path):
    store, uri = tmp_path / "store", tmp_path / "lake"
    add_run(store, "alpha", "a1", seed=1)
    lake = lake_at(uri)
    ingest(store, lake, writer_to(lake))
    before = results.open(uri)
    shutil.rmtree(store / "alpha")
    add_run(store, "alpha", "a2", seed=2)
    lake._commit_main = lambda *_: False  # each time, the writer dies between two tables
    with pytest.raises(Exception, match="20 times"):
        ingest(store, lake, writer_to(lake))
    dead = results.open(uri)
    lake = lake_at(uri)
    ingest(store, lake, writer_to(lake))
    compact(lake)
    after = results.open(uri)
    for name in ("runs", "operations", "faults", "nodes"):
        ids = [
            {row["run"].partition("@")[0] for row in rows(found.table(name).arrow())}
            for found in (before, dead, after)
        ]
        assert ids == [{"alpha/a1"}, {"alpha/a1"}, {"alpha/a1", "alpha/a2"}]


def test_the_uri_of_a_folder(tmp_path):
    store = tmp_path / "a store"
    add_run(store, "alpha", "a1")
    assert results.open(store.as_uri()).table("runs").arrow().count_rows() == 1
    found = results.open(f"file://localhost{store}")
    assert found.table("runs").arrow().count_rows() == 1


@pytest.mark.lake
def test_folders_that_are_neither_lake_nor_store(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for bad in ("", tmp_path / "nowhere" / "lake", tmp_path / "empty", tmp_path / "file"):
        with pytest.raises(UsageError, match=r"neither a lake nor a|holds no run"):
            results.open(bad)
    assert not (tmp_path / "nowhere").exists()
    assert not [*(tmp_path / "empty").iterdir()]


@pytest.mark.lake
@spark_test
def test_spark_reads_the_same(store, tmp_path):
    from results.spark.session import get_spark

    session = get_spark("local[2]")
    lake = results.open(ingested(store, tmp_path / "a lake"))
    key = rows(lake.table("runs").arrow())[0]["run"]
    for runs in (
        lake,
        lake.only(label="v1"),
        lake.only(runs=key),
        lake.only(day="2030-01-01.."),
    ):
        for name in runs.tables:
            table = runs.table(name)
            found = table.spark(session)
            plain = [row.asDict(recursive=True) for row in found.collect()]
            expected = [
                {**row, "started": row["started"].replace(tzinfo=None)} if name == "runs" else row
                for row in table.arrow().to_table().to_pylist()
            ]
            assert sorted(plain, key=repr) == sorted(expected, key=repr)


@pytest.mark.lake
@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.process
def test_a_lake_in_a_bucket(store, tmp_path):
    with s3_server() as endpoint:
        options = options_for(endpoint)
        uri = f"s3://{BUCKET}/team/lake"
        with pytest.raises(UsageError, match="there is no lake"):
            results.open(uri, storage_options=options)
        ingested(store, uri, storage_options=options)
        found = results.open(uri, storage_options=options).only(label="v1")
        assert sorted(found.table("runs").pandas()["id"]) == ["a1", "a2"]
        assert found.duckdb().execute("SELECT count(*) FROM operations").fetchone() == (40,)
