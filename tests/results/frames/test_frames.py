"""Tables for notebooks: every cell against the history it comes from."""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import results
from harness.case import load_case
from harness.errors import UsageError
from harness.ops import Attempt, History, Op, OpType
from harness.store import load_run
from tests.programs import python
from tests.results.perfetto.histories import histories
from tests.results.serve.stores import add_run, history, small_store

DTYPES = {
    "process": "int64", "f": "string", "type": "string", "value": "object", "answer": "object",
    "error": "string", "node": "string", "invoke_ns": "int64", "complete_ns": "Int64",
    "latency_ns": "Int64", "attempts": "int64", "invoke_index": "int64", "complete_index": "Int64",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("frames") / "store")


def plain(value):
    """A cell as Python has it."""
    return None if value is pd.NA else value


def types_of(frame):
    return {name: str(kind) for name, kind in frame.dtypes.items()}


@given(histories())
@settings(max_examples=60)
def test_a_row_is_a_pair(made):
    frame = made.to_pandas()
    assert types_of(frame) == DTYPES
    assert len(frame) == len(made.pairs)
    for row, pair in zip(frame.itertuples(), made.pairs, strict=True):
        call, done = pair.invoke, pair.completion
        assert (row.process, row.f, row.invoke_ns) == (call.process, call.f, call.time)
        assert (row.type, row.value, row.invoke_index) == (pair.type.value, call.value, call.index)
        assert row.answer == (None if done is None else done.value)
        assert plain(row.node) == (None if done is None else done.node)
        assert plain(row.complete_ns) == (None if done is None else done.time)
        assert plain(row.latency_ns) == (None if done is None else done.time - call.time)
        assert plain(row.complete_index) == (None if done is None else done.index)
        assert row.attempts == (0 if done is None else len(done.attempts))


def test_values_stay_what_they_are():
    """Lists of one length do not become columns, large numbers stay exact, None stays None."""
    late = 2**60 + 1
    made = History(
        [
            Op(0, 1, 0, OpType.INVOKE, "txn", [1, 2]),
            Op(1, 2, 1, OpType.INVOKE, "txn", [3, 4]),
            Op(2, late, 0, OpType.OK, "txn", {"a": None}, None, "m1", (Attempt("m1", 1, 2, "ok"),)),
            Op(3, late, 1, OpType.FAIL, "txn", None, "BUSY: wait"),
            Op(4, late, 2, OpType.INVOKE, "txn", None),
        ]
    )
    frame = made.to_pandas()
    assert list(frame["value"]) == [[1, 2], [3, 4], None]
    assert list(frame["answer"]) == [{"a": None}, None, None]
    assert list(frame["complete_ns"]) == [late, late, pd.NA]
    assert list(frame["error"]) == [pd.NA, "BUSY: wait", pd.NA]
    assert list(frame["attempts"]) == [1, 0, 0]


def test_a_row_is_a_run(store):
    runs = results.load(store)
    frame = runs.runs
    assert len(frame) == len(runs) == 12
    assert list(frame["run"]) == list(runs)
    assert list(frame["started"].dropna()) == sorted(frame["started"].dropna())
    by_run = frame.set_index("run")
    case = load_case(store / "alpha" / "a3" / "case.json")
    row = by_run.loc["alpha/a3"]
    assert (row["verdict"], row["label"], row["seed"]) == ("invalid", "v2", case.seed)
    assert (row["bugs"], row["nemeses"]) == (case.bugs, case.nemeses)
    assert (row["rate"], row["op_timeout_s"], row["knobs"]) == (case.rate, case.op_timeout_s, {})
    assert row["started"] == pd.Timestamp("2026-11-21T11:00:00Z")
    assert row["ops"] == len(load_run(store / "alpha" / "a3").history)
    assert by_run.loc["poison/torn", "verdict"] == "broken"
    assert "torn" in by_run.loc["poison/torn", "problem"]
    assert by_run.loc["poison/unfinished", "wall_s"] is pd.NA
    assert set(runs.problems) == {"poison/torn", "poison/no-record", "poison/linked"}
    assert str(frame["seed"].dtype) == "Int64"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"label": "v2"}, ["alpha/a3", "alpha/a4"]),
        ({"label": None, "name": "beta"}, ["beta/b1", "beta/b2"]),
        ({"nemeses": ["kill-leader", "pause-leader"]}, ["beta/b1"]),
        ({"bugs": [], "verdict": "invalid"}, ["beta/b2"]),
        ({"seed": 5}, ["beta/b1"]),
        ({"seed": "2..3", "name": "alpha"}, ["alpha/a2", "alpha/a3", "alpha/a4"]),
        ({"q": "no-lease"}, ["alpha/a3"]),
    ],
)
def test_filters_are_those_of_serve(store, filters, expected):
    assert list(results.load(store, **filters)) == expected


def test_operations_of_many_runs(store):
    runs = results.load(store, name="alpha")
    frame = runs.ops()
    assert types_of(frame) == {"run": "string", **DTYPES}
    assert list(frame.index) == list(range(80))
    for key in runs:
        one = frame[frame["run"] == key].drop(columns="run").reset_index(drop=True)
        pd.testing.assert_frame_equal(one, load_run(store / key).history.to_pandas())
    assert list(runs.ops(["alpha/a3"])["run"].unique()) == ["alpha/a3"]
    creates = runs.ops(f="create")
    assert list(creates["f"].unique()) == ["create"]
    assert len(creates) == (frame["f"] == "create").sum()
    assert len(runs.ops([])) == 0
    assert types_of(runs.ops([])) == types_of(frame)


def test_a_table_that_would_not_fit_is_refused_and_not_cut(store):
    runs = results.load(store, name="alpha")
    assert len(runs.ops(rows_max=80)) == 80
    with pytest.raises(UsageError, match="more than 79 operations"):
        runs.ops(rows_max=79)
    with pytest.raises(UsageError, match="'alpha/zz' is not among these 4"):
        runs.ops(["alpha/zz"])


def test_runs_that_cannot_be_read_are_left_out_with_a_warning(store):
    runs = results.load(store, name="poison")
    with pytest.warns(UserWarning, match="4 runs are left out") as told:
        frame = runs.ops()
    assert "poison/torn" in str(told[0].message)
    assert list(frame["run"].unique()) == ["poison/unfinished"]
    assert "rotten" in " ".join(runs.problems)


def test_tables_of_the_report(tmp_path):
    store = tmp_path / "store"
    add_run(store, "alpha", "a1")
    add_run(store, "alpha", "a2", label="v2")
    runs = results.load(store, label="v2")
    assert runs.tables == ()
    with pytest.raises(UsageError, match=r"run `harness report .*` first"):
        runs.facts("infos")
    (store / ".report" / "tables").mkdir(parents=True)
    table = pa.table({"run": ["alpha/a1", "alpha/a2"], "n": [1, 2]})
    pq.write_table(table, store / ".report" / "tables" / "infos.parquet")
    assert runs.tables == ("infos",)
    assert runs.facts("infos").to_dict("list") == {"run": ["alpha/a2"], "n": [2]}
    assert len(results.load(store, label="none").facts("infos")) == 0
    with pytest.raises(UsageError, match="there are infos"):
        runs.facts("../../x")
    (store / ".report" / "tables" / "infos.parquet").write_bytes(b"x")
    with pytest.raises(UsageError, match="cannot be read"):
        runs.facts("infos")


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"nemesys": "x"}, "no filter 'nemesys'"),
        ({"verdict": "good"}, "verdict is 'good'"),
        ({"seed": "a"}, "seed is 'a'"),
    ],
)
def test_bad_filters_are_usage_errors(store, filters, text):
    with pytest.raises(UsageError, match=text):
        results.load(store, **filters)


def test_a_store_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot read the store"):
        results.load(tmp_path / "none")


def test_importing_results_imports_no_pandas_and_without_it_there_is_a_line():
    code = (
        "import sys, results\n"
        "assert 'pandas' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "sys.modules['pandas'] = None\n"
        "from harness.ops import History\n"
        "try: History([]).to_pandas()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "try: results.nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    assert python(code).splitlines() == [
        "UsageError to_pandas needs pandas: pip install 'catalog-harness[report]'",
        "module 'results' has no attribute 'nothing'",
    ]


def test_latency_of_what_is_open_is_missing():
    frame = history().to_pandas()
    assert frame["latency_ns"].isna().sum() == 1
    assert frame.iloc[-1]["type"] == "info"
