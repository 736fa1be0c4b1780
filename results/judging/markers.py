"""Results of checks, stored where they were made, under the hash of what they are the result of.

`STORE/.results/ab/abcd....arrows` is one result: the verdict rows of one checker over one history
(or over the keys of one part of it), or the fact tables of one run. A result id is the SHA-256 over
everything the result depends on (`results.judging.manifest`), so that a second report finds it, and
a new checker version or a larger budget does not. Files are written under a temporary name and
renamed: whoever makes the same result twice does no harm.

A mark before the suffix tells from names alone what may come out otherwise another time:
`.limited`, a budget left some verdict unknown, and the next level is planned; `.broken`, a checker
killed its worker or raised. Beyond the last level neither is tried again by itself, since that may
cost as much as the first time; `forget_unsettled` makes room for another try.

A file holds one Arrow stream a table, one behind another; the name of the table is in the schema's
metadata. At its end is the SHA-256 of its own name and the rest: a stream that was cut off (when
the machine went down, say) would else read as one of fewer rows, and a file that came to stand
under the name of another (by a repair, a copy gone wrong) as a verdict over another history.
`gather` puts the results of many runs together, one Parquet file a table, below `.results/tables/`,
for DuckDB and Spark to read; they are sealed in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from results.facts.schema import FACT_TABLES, schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BROKEN",
    "LIMITED",
    "RESULTS",
    "Marker",
    "forget_markers",
    "forget_unsettled",
    "gather",
    "index",
    "is_limited",
    "is_unsettled",
    "read_result",
    "result_exists",
    "write_result",
]

RESULTS: Final = ".results"
SUFFIX: Final = ".arrows"
LIMITED: Final = ".limited"
BROKEN: Final = ".broken"
MARKS: Final = ("", LIMITED, BROKEN)
_TABLE: Final = b"harness.table"
_SEAL: Final = "seal"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_KEPT_S: Final = 3600.0
_TABLES_KEPT: Final = 3
_ROWS_A_WRITE: Final = 1 << 18


def _path(results: Path, result_id: str, mark: str) -> Path:
    return results / result_id[:2] / f"{result_id}{mark}{SUFFIX}"


def result_exists(results: Path, result_id: str) -> bool:
    """Whether somebody made it."""
    return any(_path(results, result_id, mark).exists() for mark in MARKS)


def write_result(
    results: Path, result_id: str, tables: Mapping[str, pa.Table], *, mark: str = ""
) -> None:
    """Store the tables of one result, all or nothing; `mark` is one of `MARKS`."""
    import pyarrow as pa

    path = _path(results, result_id, mark)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with temporary.open("wb") as file:
            buffer = pa.BufferOutputStream()
            for name, table in tables.items():
                marked = table.replace_schema_metadata({_TABLE: name.encode()})
                with pa.ipc.new_stream(buffer, marked.schema) as stream:
                    stream.write_table(marked)
            content = memoryview(buffer.getvalue())
            file.write(content)
            file.write(_seal(path.name, content))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_result(path: Path) -> dict[str, pa.Table]:
    """The tables of one result; raises `ValueError` for a damaged file."""
    import pyarrow as pa

    found: dict[str, pa.Table] = {}
    try:
        with pa.BufferReader(_content(path)) as file:
            while file.tell() < file.size():
                table = pa.ipc.open_stream(file).read_all()
                name = table.schema.metadata[_TABLE].decode()
                found[name] = table.cast(schema(name))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not found:
        raise ValueError(f"{path} is damaged: it is empty")
    return found


def _content(path: Path) -> memoryview:
    """What was written, without the digest at its end; raises `ValueError` if it is not that."""
    sealed = memoryview(path.read_bytes())
    content, digest = sealed[:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    if _seal(path.name, content) != digest:
        raise ValueError("its content is not what was written under this name")
    return content


def _seal(name: str, content: memoryview) -> bytes:
    """What tells that this was written under this name, and nothing else."""
    total = hashlib.sha256(f"{name}\n".encode())
    total.update(content)
    return total.digest()


def index(results: Path) -> dict[str, Path]:
    """Every stored result by its id, from names alone (see `is_unsettled`)."""
    found: dict[str, Path] = {}
    if not results.is_dir():
        return found
    for folder in os.scandir(results):
        if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
            continue
        for entry in os.scandir(folder.path):
            if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                result_id, _, mark = entry.name.removesuffix(SUFFIX).partition(".")
                if mark and result_id in found:
                    continue  # two reports at once, and one of them got further
                found[result_id] = Path(entry.path)
    return found


def is_limited(path: Path) -> bool:
    """Whether a budget left some verdict of this result unknown."""
    return path.name.endswith(f"{LIMITED}{SUFFIX}")


def is_unsettled(path: Path) -> bool:
    """Whether this result may come out otherwise another time, or on another machine."""
    return any(path.name.endswith(f"{mark}{SUFFIX}") for mark in MARKS if mark)


def forget_unsettled(there: Iterable[Path]) -> None:
    """Remove those of some results that are unsettled, so that they are made again."""
    for path in there:
        if is_unsettled(path):
            path.unlink(missing_ok=True)


class Marker:
    """Says that a stage of a unit was begun: whoever is killed leaves it behind.

    It counts attempts within one round of an executor. What killed its worker twice is not begun a
    third time.
    """

    ATTEMPTS_MAX: Final = 2

    def __init__(self, results: Path, round_: str, stage: str) -> None:
        """`stage` is a result id, or a name of its own for what has none."""
        self._path = results / "started" / f"{round_}-{stage}"

    @property
    def spent(self) -> bool:
        """Whether it was begun as often as it may be, and never came to an end."""
        try:
            return self._path.stat().st_size >= self.ATTEMPTS_MAX
        except FileNotFoundError:
            return False

    @property
    def begun(self) -> bool:
        """Whether it was begun before, and did not come to an end."""
        return self._path.exists()

    def __enter__(self) -> Self:
        """Count one attempt."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(b"x")
        return self

    def __exit__(self, *exc: object) -> None:
        """It came to an end, well or not."""
        self._path.unlink(missing_ok=True)


def forget_markers(results: Path, round_: str) -> None:
    """Remove what a round left behind, and what is older than an hour."""
    folder = results / "started"
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            old = time.time() - entry.stat().st_mtime > _KEPT_S
            if old or entry.name.startswith(round_):
                os.unlink(entry.path)  # noqa: PTH108 - an entry of scandir


def gather(
    results: Path,
    wanted: Sequence[tuple[str, str, Path]],
    besides: Mapping[str, Mapping[str, pa.Table]] | None = None,
) -> tuple[dict[str, Path], list[str]]:
    """One Parquet file a table, from (run key, result id, file) of every result that is wanted.

    `besides` are tables that stand in for results that nobody could make, by what they depend on.

    Returns the files by table, and the ids of damaged results, which are removed; only without any
    damage there are tables.
    """
    besides = besides or {}
    texts = [*(_named(*result) for result in wanted), "", *besides]
    name = hashlib.sha256("\n".join(["3", *texts]).encode()).hexdigest()[:24]
    folder = results / "tables" / name
    paths = {table: folder / f"{table}.parquet" for table in ("verdicts", *FACT_TABLES)}
    if folder.is_dir():
        if _are_sealed(folder, paths.values()):
            os.utime(folder)
            return paths, []
        shutil.rmtree(folder, ignore_errors=True)  # the disk never had all of them, or has others
    temporary = results / "tables" / f".{uuid.uuid4().hex}.part"
    temporary.mkdir(parents=True)
    try:
        damaged = _write_tables(temporary, wanted, besides.values())
        if damaged:
            return {}, damaged
        written = (temporary / path.name for path in paths.values())
        (temporary / _SEAL).write_text(_sealed(name, written), encoding="utf-8")
        with contextlib.suppress(OSError):  # somebody else made the same tables
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _forget_tables(folder)
    return paths, []


def _named(run: str, result_id: str, path: Path) -> str:
    """What tells the rows of one result; an unsettled one may have others under the same id."""
    when = path.stat().st_mtime_ns if is_unsettled(path) else ""
    return f"{run} {result_id} {when}"


def _are_sealed(folder: Path, paths: Iterable[Path]) -> bool:
    """Whether all files are those that were written for the folder's name, to the last byte."""
    try:
        return (folder / _SEAL).read_text(encoding="utf-8") == _sealed(folder.name, paths)
    except (OSError, UnicodeDecodeError):
        return False


def _sealed(name: str, paths: Iterable[Path]) -> str:
    """The digest of some files that belong to a folder's name; reading them once is cheap."""
    total = hashlib.sha256(f"{name}\n".encode())
    for path in paths:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()


def _write_tables(
    folder: Path,
    wanted: Sequence[tuple[str, str, Path]],
    besides: Iterable[Mapping[str, pa.Table]],
) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    damaged: list[str] = []
    with contextlib.ExitStack() as stack:
        writers = {
            table: stack.enter_context(
                pq.ParquetWriter(folder / f"{table}.parquet", schema(table), compression="zstd")
            )
            for table in ("verdicts", *FACT_TABLES)
        }
        waiting: dict[str, list[pa.Table]] = {table: [] for table in writers}
        rows = dict.fromkeys(writers, 0)
        others = (item for tables in besides for item in tables.items())
        for table, part in itertools.chain(_parts(wanted, damaged), others):
            waiting[table].append(part)
            rows[table] += len(part)
            if rows[table] >= _ROWS_A_WRITE:
                writers[table].write_table(pa.concat_tables(waiting[table]))
                waiting[table], rows[table] = [], 0
        for table, parts in waiting.items():
            if parts:
                writers[table].write_table(pa.concat_tables(parts))
    return damaged


def _parts(
    wanted: Iterable[tuple[str, str, Path]], damaged: list[str]
) -> Iterator[tuple[str, pa.Table]]:
    import pyarrow as pa

    for run, result_id, path in wanted:
        try:
            tables = read_result(path)
        except ValueError:
            path.unlink(missing_ok=True)
            damaged.append(result_id)
            continue
        for name, table in tables.items():
            # Runs with equal histories share their verdicts.
            keys = pa.repeat(pa.scalar(run, pa.string()), len(table))
            yield name, table.set_column(0, schema(name).field(0), keys)


def _forget_tables(current: Path) -> None:
    """Keep the newest few folders of tables; younger ones may still be read by somebody."""
    folders = sorted(
        (entry for entry in os.scandir(current.parent) if entry.is_dir(follow_symlinks=False)),
        key=lambda entry: entry.stat().st_mtime,
        reverse=True,
    )
    for entry in folders[_TABLES_KEPT:]:
        if entry.path != str(current) and time.time() - entry.stat().st_mtime > _KEPT_S:
            shutil.rmtree(entry.path, ignore_errors=True)
