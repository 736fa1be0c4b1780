"""Verdicts belong to what a file holds, whatever its footer says."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import HistoryError
from harness.ops import History
from harness.store.parquet import write_table
from results.judging.contents import digest_of, read_contents
from results.judging.pipeline import check_store
from tests.results.judging.stores import keyed_history, put_run, register_ops, verdicts

LINEAR = "linearizable-register"


def rewrite(path, before, after):
    """Write a file again with other answers, under the footer that it had."""
    table = pq.read_table(path)
    texts = [
        text.replace(before, after) if kind == "ok" else text
        for kind, text in zip(
            *(table.column(n).to_pylist() for n in ("type", "value")), strict=True
        )
    ]
    assert texts != table.column("value").to_pylist()
    place = table.column_names.index("value")
    table = table.set_column(place, table.schema.field(place), pa.array(texts, pa.string()))
    pq.write_table(table, path, compression="zstd")


def linear(store):
    """The verdicts by key, the kinds of problems, and how many results were new."""
    checked = check_store(store, executor="inline", checkers=(LINEAR,))
    found = {key: verdict for (_, _, key), verdict in verdicts(checked).items()}
    return found, {problem.kind for problem in checked.problems}, checked.results_new


def test_a_history_written_again_under_its_footer_has_no_verdict_any_more(tmp_path):
    path = put_run(tmp_path, "n", "r", History(register_ops(1))) / "history.parquet"
    assert linear(tmp_path) == ({None: "valid"}, set(), 2)
    assert linear(tmp_path)[2] == 0

    before = pq.read_schema(path).metadata[b"harness.digest"]
    rewrite(path, '"value":2', '"value":777')
    assert pq.read_schema(path).metadata[b"harness.digest"] == before
    for _ in range(2):
        found, kinds, _ = linear(tmp_path)
        assert (found, kinds) == ({}, {"history"})  # its digest is not what was sealed


def test_a_bucket_written_again_is_judged_as_it_is(tmp_path):
    path = put_run(tmp_path, "n", "r", keyed_history("abc"), buckets=1)
    path /= "history/bucket-00.parquet"
    assert set(linear(tmp_path)[0].values()) == {"valid"}

    rewrite(path, '"value":2', '"value":777')
    for _ in range(2):
        found, kinds, _ = linear(tmp_path)
        assert "invalid" in found.values()
        assert kinds == {"history"}  # its digest is not what was sealed


def test_only_the_part_of_a_bucket_that_changed_is_judged_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.store.keyed.GROUP_ROWS", 30)
    monkeypatch.setattr("results.judging.manifest.UNIT_ROWS", 30)
    folder = put_run(tmp_path, "n", "r", keyed_history("abcd"), buckets=1)
    path = folder / "history" / "bucket-00.parquet"
    table = pq.read_table(path)
    assert [group.rows for group in read_contents(path)[1]] == [24, 24, 24, 25]
    assert check_store(tmp_path, executor="inline", checkers=(LINEAR,), facts=False).units == 4

    texts = table.column("value").to_pylist()
    last = max(n for n in range(24, 48) if '"value"' in texts[n])
    texts[last] = '{"value":777}'
    place = table.column_names.index("value")
    table = table.set_column(place, table.schema.field(place), pa.array(texts, pa.string()))
    footer, _ = read_contents(path)
    write_table(path, table, footer, ends=[24, 48, 72, 97])
    checked = check_store(tmp_path, executor="inline", checkers=(LINEAR,), facts=False)
    assert (checked.units, checked.results_known) == (1, 3)
    found = {key: verdict for (_, _, key), verdict in verdicts(checked).items()}
    assert found == {'"a"': "valid", '"b"': "invalid", '"c"': "valid", '"d"': "valid"}


def test_equal_histories_are_judged_once_whatever_their_footers_say(tmp_path):
    for number, label in enumerate(("old", "new")):
        put_run(tmp_path, "n", f"r{number}", History(register_ops(1)), label=label)
    check_store(tmp_path, executor="inline", checkers=(LINEAR,), facts=False, label="old")
    again = check_store(tmp_path, executor="inline", checkers=(LINEAR,), facts=False, label="new")
    assert (again.results_known, again.results_new) == (1, 0)


def test_every_byte_of_every_column_counts(tmp_path):
    path = put_run(tmp_path, "n", "r", History(register_ops(1))) / "history.parquet"
    whole = path.read_bytes()
    footer, groups = read_contents(path)
    metadata = pq.read_metadata(path)
    seen = {digest_of(footer, groups)}
    for number in range(metadata.row_group(0).num_columns):
        column = metadata.row_group(0).column(number)
        begin = column.dictionary_page_offset or column.data_page_offset
        for place in (begin, begin + column.total_compressed_size - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            seen.add(digest_of(*read_contents(path)))
    assert len(seen) == 1 + 2 * metadata.row_group(0).num_columns


def test_the_names_of_columns_count(tmp_path):
    path = put_run(tmp_path, "n", "r", History(register_ops(1))) / "history.parquet"
    names = pq.read_schema(path).names
    table = pq.read_table(path)
    swap = {"error": "node", "node": "error"}
    table = table.rename_columns([swap.get(name, name) for name in names])
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    swapped = digest_of(*read_contents(path))
    table = table.rename_columns(names)
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    assert swapped != digest_of(*read_contents(path))


def test_row_groups_that_are_not_there(tmp_path):
    path = put_run(tmp_path, "n", "r", History(register_ops(1))) / "history.parquet"
    with pytest.raises(HistoryError, match="has 1 row groups, not 3"):
        read_contents(path, (0, 3))
