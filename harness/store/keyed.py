"""Histories over many keys, sealed in buckets: `history/bucket-NN.parquet`.

Every client operation of a keyed history has a value `[key, value]` (`generator.independent`). A
bucket holds whole keys: those whose hash is its number modulo the number of buckets, sorted by
(key, index), so that a key is one slice of rows and a checker can look at columns in place. The
column `key` is the JSON of the key and `value` that of the rest; what nemesis and harness noted has
no key and lies at the end of bucket 0. Row groups end where keys do, and a large key has one or
more of its own: they are what work is split by.

Reading puts all buckets together again, in the order of indices; a missing one is noticed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError, InfrastructureError
from harness.ops import History
from harness.store.footer import BY_KEY, Footer, cost_of
from harness.store.parquet import ops_of_table, read_sealed, table_of, write_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = [
    "GROUP_ROWS",
    "bucket_of",
    "bucket_paths",
    "checked_buckets",
    "columns_digest",
    "is_keyed",
    "read_buckets",
    "write_bucket",
    "write_buckets",
]

GROUP_ROWS: Final = 1 << 17
LARGE_KEY_ROWS: Final = 1 << 14
_BUCKETS_MAX: Final = 10_000


def bucket_of(key: str, buckets: int) -> int:
    """The bucket of a key, given as JSON: the same in every process and version."""
    return zlib.crc32(key.encode()) % buckets


def is_keyed(history: History) -> bool:
    """Whether every client operation is about one key, the same when it ends as when it began."""
    return all(
        isinstance(value, (list, tuple)) and len(value) == 2
        for pair in history.pairs
        for op in (pair.invoke, pair.completion)
        if op is not None
        for value in (op.value,)
    ) and all(
        pair.completion is None or pair.completion.value[0] == pair.invoke.value[0]
        for pair in history.pairs
    )


def columns_digest(table: pa.Table) -> str:
    """SHA-256 over the content of all columns that make up ops, whatever their layout in memory."""
    total = hashlib.sha256()
    for name in ("key", "index", "time", "process", "type", "f", "value", "error", "node"):
        _digest(total, table.column(name).combine_chunks())
    attempts = table.column("attempts").combine_chunks()
    _digest(total, attempts.value_lengths())
    flat = attempts.flatten()
    for number in range(flat.type.num_fields):
        _digest(total, flat.field(number))
    return total.hexdigest()


def _digest(total: Any, array: Any) -> None:
    """Add an array of whole numbers or text: which are null, lengths, content."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    total.update(pc.is_null(array).cast(pa.uint8()).to_numpy())
    if pa.types.is_integer(array.type):
        numbers = pc.fill_null(array, 0).cast(pa.int64()).to_numpy()
        total.update(numbers.astype("<i8", copy=False))
        return
    texts = pc.fill_null(array, "").cast(pa.large_binary())
    lengths = pc.binary_length(texts).to_numpy()
    total.update(lengths.astype("<i8", copy=False))
    _, offsets, content = texts.buffers()
    if content is not None and len(texts):
        begin = int(np.frombuffer(offsets, dtype="<i8")[texts.offset])
        total.update(memoryview(content)[begin : begin + int(lengths.sum())])


def write_buckets(
    folder: Path,
    history: History,
    *,
    buckets: int,
    run: str | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> None:
    """Seal a keyed history as `folder/bucket-NN.parquet`; raises `HistoryError` if it is none."""
    import numpy as np
    import pyarrow as pa

    if not 1 <= buckets <= _BUCKETS_MAX:
        raise HistoryError(f"a history in {buckets} buckets; it must be 1 .. {_BUCKETS_MAX}")
    if not is_keyed(history):
        raise HistoryError("a history with values other than [key, value] cannot be in buckets")
    plain, _ = table_of(history)
    encoder = msgspec.json.Encoder(order="sorted")
    keys = [encoder.encode(op.value[0]).decode() if op.is_client else None for op in history]
    values = [encoder.encode(op.value[1] if op.is_client else op.value).decode() for op in history]
    table = _with(
        plain, {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())}
    )
    place = pa.array([0 if key is None else bucket_of(key, buckets) for key in keys], pa.int32())
    table = table.append_column("place", place)
    table = table.sort_by([("place", "ascending"), ("key", "ascending"), ("index", "ascending")])
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InfrastructureError(f"cannot create {folder}: {error.strerror}") from error
    places = table.column("place").to_numpy()
    for bucket in range(buckets):
        start, end = np.searchsorted(places, [bucket, bucket + 1])
        part = table.slice(int(start), int(end - start)).drop_columns(["place"])
        write_bucket(folder, part, bucket, buckets, run=run, seed=seed, label=label)


def _with(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    for name, column in columns.items():
        number = table.column_names.index(name)
        table = table.set_column(number, table.schema.field(number), column)
    return table


def write_bucket(
    folder: Path,
    table: pa.Table,
    bucket: int,
    buckets: int,
    *,
    run: str | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> None:
    """Seal one bucket from a table of `schema_of`, sorted by (key, index), rows without key last.

    Raises `HistoryError` where it is not sorted or a key belongs elsewhere.
    """
    starts, sizes = key_slices(table)
    _check_sorted(table, starts, bucket, buckets)
    footer = Footer(
        run=run,
        seed=seed,
        label=label,
        digest=columns_digest(table),
        n_ops=len(table),
        n_keys=len(starts),
        max_key_ops=int(sizes.max(initial=0)),
        cost=_cost(table, starts, sizes),
        order=BY_KEY,
        bucket=bucket,
        buckets=buckets,
    )
    path = folder / f"bucket-{bucket:02d}.parquet"
    write_table(path, table, footer, ends=_group_ends(starts, sizes, len(table)))


def key_slices(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Where each key's rows begin, and how many they are; rows without key are left out."""
    import numpy as np
    import pyarrow as pa

    column = table.column("key")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.unify_dictionaries().combine_chunks()
    numbers = codes.indices.fill_null(-1).to_numpy()
    keyed = int(np.count_nonzero(numbers >= 0))
    if not keyed:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    numbers = numbers[:keyed]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
    return starts, np.diff(np.concatenate([starts, [keyed]]))


def _check_sorted(table: pa.Table, starts: np.ndarray, bucket: int, buckets: int) -> None:
    import numpy as np

    key = table.column("key")
    named = len(table) - key.null_count
    keys = key.take(starts).to_pylist() if len(starts) else []
    if None in keys or key.slice(named).null_count != key.null_count or keys != sorted(set(keys)):
        raise HistoryError("the rows of a bucket must be sorted by key, those without one last")
    index = table.column("index").to_numpy()
    rising = np.diff(index[:named]) > 0
    rising[starts[1:] - 1] = True  # from one key to the next
    if not rising.all():
        raise HistoryError("the rows of a key must be sorted by index, each index once")
    for name in keys:
        if bucket_of(name, buckets) != bucket:
            raise HistoryError(
                f"the key {name} belongs to bucket {bucket_of(name, buckets)}, not {bucket}"
            )
    if key.null_count and bucket:
        raise HistoryError("rows without a key belong to bucket 0")


def _cost(table: pa.Table, starts: np.ndarray, sizes: np.ndarray) -> int:
    """The sum over all keys of `cost_of`; an operation of unknown outcome stays open."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(starts):
        return 0
    kinds = table.column("type")
    step = np.zeros(len(table), np.int64)
    step[pc.equal(kinds, "invoke").to_numpy()] = 1
    step[pc.is_in(kinds, value_set=pa.array(["ok", "fail"])).to_numpy()] = -1
    total = np.concatenate([[0], np.cumsum(step)])
    # The running sum goes on from key to key: what a key began with is taken off again.
    peaks = np.maximum.reduceat(total[1:], starts) - total[starts]
    return int(sum(cost_of(int(n), int(peak)) for n, peak in zip(sizes, peaks, strict=True)))


def _group_ends(starts: np.ndarray, sizes: np.ndarray, rows: int) -> list[int]:
    """Where row groups end: at ends of keys, about every `GROUP_ROWS`, large keys by themselves."""
    ends: list[int] = []
    begun = 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        large = size >= LARGE_KEY_ROWS
        if start > begun and (large or start + size - begun > GROUP_ROWS):
            ends.append(start)
            begun = start
        if large:
            ends.append(start + size)
            begun = start + size
    return [*ends, rows] if rows > begun or not ends else ends


def bucket_paths(folder: Path) -> list[Path]:
    """The buckets below a run's `history/`, in order; other files there are none of ours."""
    return sorted(path for path in folder.glob("bucket-*.parquet") if path.is_file())


def checked_buckets(folder: Path) -> Iterator[tuple[Path, pa.Table]]:
    """The rows of one bucket after another; raises `HistoryError`, also where one is missing."""
    found: set[int] = set()
    buckets = 0
    for path in bucket_paths(folder):
        table, footer = read_sealed(path)
        if footer.order != BY_KEY:
            raise HistoryError(f"{str(path)!r} is not a bucket: its order is {footer.order!r}")
        digest = columns_digest(table)
        if digest != footer.digest:
            raise HistoryError(
                f"{str(path)!r} was altered: its digest is {digest}, sealed as {footer.digest}"
            )
        buckets = max(buckets, footer.buckets)
        if footer.bucket in found:
            raise HistoryError(f"{str(path)!r} is bucket {footer.bucket}, which another one is")
        found.add(footer.bucket)
        yield path, table
    missing = [number for number in range(buckets) if number not in found]
    if missing or not buckets:
        raise HistoryError(
            f"{str(folder)!r} lacks {len(missing)} of {buckets} buckets, first {missing[:10]}; "
            "restore them from a copy"
        )


def read_buckets(folder: Path) -> History:
    """The whole history of a folder of buckets; raises `HistoryError` where one is missing."""
    import pyarrow as pa

    table = pa.concat_tables(table for _, table in checked_buckets(folder)).sort_by("index")
    try:
        return History(ops_of_table(folder, table))
    except HistoryError as error:
        raise HistoryError(f"{str(folder)!r}: {error}") from error
