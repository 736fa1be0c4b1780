"""Sealed histories of version 2: footers, buckets, and files of version 1."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.store.keyed import bucket_of, bucket_paths, columns_digest, is_keyed
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.case import Case
from harness.errors import HistoryError
from harness.ops import HARNESS, Attempt, History, Op, OpType
from harness.store import RunFolder, lat_bucket, load_run, read_parquet, write_parquet
from harness.store.footer import BY_KEY, read_footer
from harness.store.parquet import read_sealed
from tests.tiers import examples

KEYS = st.one_of(st.integers(0, 5), st.text(max_size=3), st.none())


@st.composite
def keyed_histories(draw):
    """Clients take turns on keys; some operations fail, some are lost."""
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
@given(history=keyed_histories(), buckets=st.integers(1, 5))
def test_a_keyed_history_comes_back_from_its_buckets(history, buckets, tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("k"), "n", "r")
    folder.write_case(Case(seed=9))
    folder.seal(history, buckets=buckets, label="v1")

    assert load_run(folder.path).history == history

    footers = [read_footer(path) for path in bucket_paths(folder.path / "history")]
    assert [footer.bucket for footer in footers] == list(range(buckets))
    assert {(f.order, f.buckets, f.run, f.seed, f.label) for f in footers} == {
        (BY_KEY, buckets, "r", 9, "v1")
    }
    keys = [json.dumps(op.value[0]) for op in history if op.is_client]
    assert sum(footer.n_keys for footer in footers) == len(set(keys))
    assert sum(footer.n_ops for footer in footers) == len(history)
    largest = max([keys.count(key) for key in keys], default=0)
    assert max(footer.max_key_ops for footer in footers) == largest


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
    assert table.column("key").null_count == len(history)


def a_history():
    ops = [
        Op(0, 0, 1, OpType.INVOKE, "read", [1, {}]),
        Op(1, 5, 1, OpType.OK, "read", [1, {"value": None}], None, "n1"),
    ]
    return History(ops)


def test_a_footer_says_what_is_in_the_file(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(path, a_history(), run="r", seed=7, label="nightly")
    footer = read_footer(path)

    assert (footer.run, footer.seed, footer.label) == ("r", 7, "nightly")
    assert (footer.schema, footer.n_ops, footer.n_keys, footer.max_key_ops) == (2, 2, 1, 2)
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
    table = pq.read_table(path).drop_columns(["key", "lat_bucket"])
    digest = a_history().digest()
    pq.write_table(table.replace_schema_metadata({"harness.digest": digest}), path)

    assert read_parquet(path) == a_history()
    footer = read_footer(path)
    assert (footer.schema, footer.n_ops, footer.digest) == (1, 2, digest)


def rewritten(path, **changed):
    """The file with other metadata."""
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, **{f"harness.{k}".encode(): v for k, v in changed.items()}}
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"schema": "3"}, "is of schema 3"),
        ({"schema": "two"}, "footer"),
        ({"n_ops": "3"}, "names 3 ops"),
        ({"bucket": "5/2"}, "bucket 5/2"),
        ({"bucket": "x"}, "footer"),
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


def keyed_folder(tmp_path, buckets=3):
    folder = RunFolder(tmp_path, "n", "r")
    folder.write_case(Case(seed=1))
    ops = [Op(n, n, n, OpType.INVOKE, "write", [n, {"value": n}]) for n in range(20)]
    folder.seal(History(ops), buckets=buckets)
    return folder.path


def test_a_missing_bucket_is_noticed(tmp_path):
    path = keyed_folder(tmp_path)
    (path / "history" / "bucket-02.parquet").unlink()
    with pytest.raises(HistoryError, match="lacks"):
        load_run(path)


def test_an_altered_bucket_is_noticed(tmp_path):
    path = keyed_folder(tmp_path, buckets=1) / "history" / "bucket-00.parquet"
    table = pq.read_table(path)
    times = pa.array([1, *table.column("time").to_pylist()[1:]], pa.int64())
    pq.write_table(
        table.set_column(1, "time", times).replace_schema_metadata(table.schema.metadata), path
    )
    with pytest.raises(HistoryError, match="was altered"):
        load_run(path.parent.parent)


def test_a_bucket_alone_is_no_history(tmp_path):
    path = keyed_folder(tmp_path) / "history" / "bucket-00.parquet"
    with pytest.raises(HistoryError, match="give the run's folder"):
        read_parquet(path)


def test_only_keyed_histories_go_into_buckets(tmp_path):
    folder = RunFolder(tmp_path, "n", "r")
    history = History([Op(0, 0, 1, OpType.INVOKE, "f", {"value": 1})])
    assert not is_keyed(history)
    with pytest.raises(HistoryError, match="other than"):
        folder.seal(history, buckets=2)


def test_a_key_that_changes_under_an_operation_is_no_key():
    ops = [Op(0, 0, 1, OpType.INVOKE, "f", [1, None]), Op(1, 1, 1, OpType.OK, "f", [2, None])]
    assert not is_keyed(History(ops))


def test_buckets_are_the_same_everywhere():
    assert [bucket_of(key, 16) for key in ("1", '"a"', "null")] == [7, 14, 15]


def test_a_digest_of_columns_knows_every_cell_and_no_layout(tmp_path):
    path = keyed_folder(tmp_path, buckets=1) / "history" / "bucket-00.parquet"
    table, _ = read_sealed(path)
    whole = columns_digest(table)
    parts = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    assert columns_digest(parts) == whole
    assert columns_digest(table.slice(0, 19)) != whole
    for name in ("key", "error", "node", "f", "value"):
        number = table.column_names.index(name)
        cells = table.column(name).to_pylist()
        for cell in ("", "x"):
            changed = pa.array([cell, *cells[1:]], pa.string())
            assert columns_digest(table.set_column(number, name, changed)) != whole
