"""One history as a data frame, whose cells are compared with the ops."""

import pandas as pd
from hypothesis import given, settings

from harness.ops import Attempt, History, Op, OpType
from tests.results.run.perfetto.histories import histories
from tests.support.programs import python
from tests.tiers import examples

DTYPES = {
    "process": "int64", "f": "string", "type": "string", "value": "object", "answer": "object",
    "error": "string", "node": "string", "invoke_ns": "int64", "complete_ns": "Int64",
    "latency_ns": "Int64", "attempts": "int64", "invoke_index": "int64", "complete_index": "Int64",
}  # fmt: skip


def plain(value):
    return None if value is pd.NA else value


def types_of(frame):
    return {name: str(kind) for name, kind in frame.dtypes.items()}


@given(histories())
@settings(max_examples=examples(60))
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


def test_values_survive_the_round_trip():
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
