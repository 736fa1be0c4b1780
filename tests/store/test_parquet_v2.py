"""Sealed histories of version 2 have footers. Files of version 1 can still be read."""

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.ops import HARNESS, Attempt, History, Op, OpType
from harness.store import lat_bucket, read_parquet, write_parquet
from harness.store.footer import read_footer
from harness.store.parquet import read_sealed
from tests.tiers import examples

KEYS = st.one_of(st.integers(0, 5), st.text(max_size=3), st.none())


@st.composite
def keyed_histories(draw):
    """Draw histories of clients on keys; some operations fail or are lost."""
    ops = []
    for process in range(draw(st.integers(0, 12))):
        key = draw(KEYS)
        end = draw(st.sampled_from([OpType.OK, OpType.FAIL, OpType.INFO, None]))
        took = draw(st.integers(-5, 10**10))
        begin = draw(st.integers(0, 10**9))
        ops.append((begin, process, OpType.INVOKE, [key, {"value": process}], ()))
        if end is not None:
            tried = tuple(Attempt("n1", n, n + 1, "ok") for n in range(draw(st.integers(0, 2))))
            ops.append((begin + took, process, end, [key, draw(st.none() | st.text())], tried))
    ops.append((0, HARNESS, OpType.INFO, {"phase": "chaos"}, ()))
    return History(
        Op(index * 3, time, process, kind, "f", value, None, None, attempts)
        for index, (time, process, kind, value, attempts) in enumerate(ops)
    )


@settings(max_examples=examples(60), deadline=None)
@given(history=keyed_histories())
def test_latencies_are_those_of_the_operations(history, tmp_path_factory):
    path = tmp_path_factory.mktemp("l") / "history.parquet"
    write_parquet(path, history)
    table = pq.read_table(path)
    expected = {
        pair.completion.index: lat_bucket(pair.completion.time - pair.invoke.time)
        for pair in history.pairs
        if pair.completion is not None
    }
    found = dict(zip(*(table.column(n).to_pylist() for n in ("index", "lat_bucket")), strict=True))

    assert found == {op.index: expected.get(op.index) for op in history}


def a_history():
    ops = [
        Op(0, 0, 1, OpType.INVOKE, "read", [1, {}]),
        Op(1, 5, 1, OpType.OK, "read", [1, {"value": None}], None, "n1"),
    ]
    return History(ops)


def test_a_footer_describes_the_file(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(path, a_history(), run="r", seed=7, label="nightly")
    footer = read_footer(path)

    assert (footer.run, footer.seed, footer.label) == ("r", 7, "nightly")
    assert (footer.schema, footer.n_ops, footer.order) == (2, 2, "index")
    assert footer.digest == a_history().digest()
    assert footer.cost > 0


def test_cost_grows_with_operations_open_at_once(tmp_path):
    def sealed(overlapping):
        order = [0, 1, 2, 3] if overlapping else [0, 2, 1, 3]
        steps = [(1, OpType.INVOKE), (2, OpType.INVOKE), (1, OpType.OK), (2, OpType.OK)]
        ops = [Op(n, n, *steps[place], "f") for n, place in enumerate(order)]
        write_parquet(tmp_path / "h", History(ops))
        return read_footer(tmp_path / "h").cost

    assert sealed(overlapping=True) > sealed(overlapping=False)


def test_version_1_is_read(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(path, a_history())
    table = pq.read_table(path).drop_columns(["lat_bucket"])
    digest = a_history().digest()
    pq.write_table(table.replace_schema_metadata({"harness.digest": digest}), path)

    assert read_parquet(path) == a_history()
    footer = read_footer(path)
    assert (footer.schema, footer.n_ops, footer.digest) == (1, 2, digest)


def rewritten(path, **changed):
    """Write the file again with changed metadata."""
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, **{f"harness.{k}".encode(): v for k, v in changed.items()}}
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"schema": "3"}, "has schema 3"),
        ({"schema": "two"}, "footer"),
        ({"n_ops": "3"}, "counts 3 ops"),
        ({"order": "key,index"}, "in the order 'key,index'"),
    ],
)
def test_strange_footers_are_refused(changed, words, tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(path, a_history())
    rewritten(path, **changed)
    with pytest.raises(HistoryError, match=words):
        read_footer(path)


def test_rot_in_a_page_is_noticed_without_its_digest(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(path, a_history())
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    content = bytearray(path.read_bytes())
    end = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    content[end + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=r"is damaged|strange"):
        read_sealed(path)
