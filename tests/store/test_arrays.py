"""Columns equal those that pyarrow builds, without an import of pandas."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.store import parquet
from harness.store.parquet import column_of
from tests.support.programs import python


def lists_of(values):
    return st.lists(st.none() | values, max_size=20)


@given(
    st.tuples(st.just(pa.int32()), lists_of(st.integers(-(2**31), 2**31 - 1)))
    | st.tuples(st.just(pa.int64()), lists_of(st.integers(-(2**63), 2**63 - 1)))
    | st.tuples(st.just(pa.string()), lists_of(st.text(max_size=4)))
)
def test_columns_are_those_of_pyarrow(given_):
    kind, values = given_
    found = column_of(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))
    assert found.null_count == values.count(None)


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        ([1.5], pa.int64(), TypeError),
        (["1"], pa.int64(), TypeError),
        ([2**63], pa.int64(), OverflowError),
        ([2**31], pa.int32(), OverflowError),
        ([1], pa.string(), TypeError),
        ([b"x"], pa.string(), TypeError),
        (["\ud800"], pa.string(), UnicodeEncodeError),
    ],
)
def test_values_that_a_column_cannot_hold_are_refused(values, kind, error):
    with pytest.raises(error):
        column_of(values, kind)


def test_text_of_many_bytes_is_left_to_pyarrow(monkeypatch):
    monkeypatch.setattr(parquet, "_TEXT_BYTES_MAX", 3)
    assert column_of(["ab", None, "cd"], pa.string()).to_pylist() == ["ab", None, "cd"]


def test_a_run_does_not_import_pandas(tmp_path):
    script = (
        "import sys; from harness.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.exit('pandas' if 'pandas' in sys.modules else code)\n"
    )
    case = ("--target", "toy-register", "--workload", "register", "--time-limit", "1")
    python(script, "run", "--env", "sim", *case, "--nemesis", "none", cwd=tmp_path)
    assert list(tmp_path.glob("store/*/*/history.parquet"))
