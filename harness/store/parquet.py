"""Sealed histories: one Parquet file a run, sorted by index, zstd, readable by anything.

| column   | type   | what                                                    |
|----------|--------|---------------------------------------------------------|
| index    | int64  | position                                                |
| time     | int64  | ns since the start of the run                           |
| process  | int64  | client process; -1 is the nemesis, -2 the harness       |
| type     | string | invoke, ok, fail, info                                  |
| f        | string | the kind of operation                                   |
| value    | string | JSON                                                    |
| error    | string | null where there was none                               |
| node     | string | the node that answered last                             |
| attempts | list   | structs of node, start, end (ns since start), outcome    |

The file's metadata holds the digest of the history under `harness.digest`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError, InfrastructureError
from harness.ops import HARNESS, NEMESIS, Attempt, History, Op, OpType, Process

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "read_parquet", "write_parquet"]

COLUMNS: Final = ("index", "time", "process", "type", "f", "value", "error", "node", "attempts")
_ACTORS: Final[dict[str, int]] = {NEMESIS: -1, HARNESS: -2}
_BAD_ROW: Final = (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError)
_NAMES: Final[dict[int, str]] = {number: name for name, number in _ACTORS.items()}


def _schema() -> pa.Schema:
    import pyarrow as pa

    attempt = pa.struct(
        [
            ("node", pa.string()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("outcome", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("index", pa.int64()),
            ("time", pa.int64()),
            ("process", pa.int64()),
            ("type", pa.string()),
            ("f", pa.string()),
            ("value", pa.string()),
            ("error", pa.string()),
            ("node", pa.string()),
            ("attempts", pa.list_(attempt)),
        ]
    )


def write_parquet(path: Path, history: History) -> None:
    """Write `history` durably and at once: under `path` there is all of it or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = _schema().with_metadata({"harness.digest": history.digest()})
        table = pa.table(_columns(history), schema=schema)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise HistoryError(
            f"the history cannot be sealed: {error}; indices, times and processes are whole "
            "numbers of 64 bits, values plain JSON"
        ) from error
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InfrastructureError(f"cannot seal {path}: {error.strerror or error}") from error


def _columns(history: History) -> dict[str, list[Any]]:
    encoder = msgspec.json.Encoder(order="sorted")
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for op in history:
        columns["index"].append(op.index)
        columns["time"].append(op.time)
        columns["process"].append(_number(op))
        columns["type"].append(op.type.value)
        columns["f"].append(op.f)
        columns["value"].append(encoder.encode(op.value).decode())
        columns["error"].append(op.error)
        columns["node"].append(op.node)
        columns["attempts"].append([msgspec.structs.asdict(attempt) for attempt in op.attempts])
    return columns


def _number(op: Op) -> int:
    """The process as a number of the file; raises `HistoryError` for one that has none."""
    if isinstance(op.process, str):
        if op.process not in _ACTORS:
            raise HistoryError(
                f"op {op.index}: the process {op.process!r} is unknown; "
                f"besides numbers there are {', '.join(_ACTORS)}"
            )
        return _ACTORS[op.process]
    if op.process < 0:
        raise HistoryError(f"op {op.index}: the process {op.process} is below 0; renumber it")
    return op.process


def read_parquet(path: Path) -> History:
    """Read a sealed history; raises `HistoryError` for foreign, torn or altered files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HistoryError(f"{str(path)!r} is no readable Parquet file: {text}") from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise HistoryError(
            f"{str(path)!r} is no history: it lacks the columns {', '.join(missing)}"
        )
    try:
        history = History(_op(row) for row in table.select(COLUMNS).to_pylist())
    except HistoryError as error:
        raise HistoryError(f"{str(path)!r}: {error}") from error
    except _BAD_ROW as error:
        raise HistoryError(f"{str(path)!r} holds a row that is no op: {error!r}") from error
    except pa.ArrowException as error:
        raise HistoryError(f"{str(path)!r} holds columns of other types: {error}") from error
    recorded = (table.schema.metadata or {}).get(b"harness.digest", b"").decode(errors="replace")
    if recorded and recorded != history.digest():
        raise HistoryError(
            f"{str(path)!r} was altered: its digest is {history.digest()}, sealed as {recorded}"
        )
    return history


def _op(row: dict[str, Any]) -> Op:
    number = int(row["process"])
    process: Process = _NAMES.get(number, number)
    return Op(
        index=row["index"],
        time=row["time"],
        process=process,
        type=OpType(row["type"]),
        f=row["f"],
        value=msgspec.json.decode(row["value"]),
        error=row["error"],
        node=row["node"],
        attempts=tuple(msgspec.convert(attempt, Attempt) for attempt in row["attempts"] or ()),
    )
