"""The footer of a sealed history: enough to plan work on a store without reading ops.

The footer's key-value metadata has these entries. Each name has the prefix `harness.`, and each
value is text.

| name             | content                                                                |
|------------------|------------------------------------------------------------------------|
| schema           | 2; files without this entry are of version 1, and have only the digest |
| run, seed, label | the identity of the run; any of them may be missing                    |
| digest           | `History.digest()` of the file's ops                                   |
| n_ops            | number of rows: invocations, completions, ops of nemesis and harness   |
| cost             | estimated CPU ns of a check, to pack work evenly; only ratios matter   |
| order            | "index": rows are sorted by index                                      |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError, counted

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA: Final = 2
BY_INDEX: Final = "index"
COLUMNS: Final = ("index", "time", "process", "type", "f", "value", "error", "node", "attempts")
"""The columns that every sealed history has."""
_PREFIX: Final = "harness."
_NS_PER_OP: Final = 20_000
_NS_PER_OP_AND_OPEN: Final = 1_500


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """The footer of a sealed history.

    For a file of version 1, it has only the values that are known without reading ops.
    """

    digest: str
    n_ops: int
    schema: int = SCHEMA
    run: str | None = None
    seed: int | None = None
    label: str | None = None
    cost: int = 0
    order: str = BY_INDEX

    def metadata(self) -> dict[str, str]:
        """Return this footer as the key-value metadata of a Parquet file."""
        return {
            f"{_PREFIX}{name}": str(value)
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None
        }


def cost_of(n_ops: int, open_max: int) -> int:
    """Return the estimated CPU ns for checking a history of `n_ops` rows.

    At most `open_max` operations are open at the same time. The estimate is fitted to simulated
    runs of the catalog. For other models the cost differs by a factor that is the same for all
    their histories.
    """
    return n_ops * (_NS_PER_OP + _NS_PER_OP_AND_OPEN * open_max)


def open_sealed(path: Path) -> Any:
    """Open a sealed history; returns its `pyarrow.parquet.ParquetFile`.

    Raises `HistoryError` if the file is not a sealed history. Each page's checksum is verified when
    the page is read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():  # a pipe or a device may never end
        raise HistoryError(f"{str(path)!r} is not a plain file")
    try:
        file = pq.ParquetFile(
            path,
            page_checksum_verification=True,
            # buffering copies the file, which is worthwhile only for remote stores
            pre_buffer=False,
        )
        names = file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(
            f"{str(path)!r} is not a readable Parquet file: {first_line(error)}"
        ) from error
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        file.close()
        raise HistoryError(
            f"{str(path)!r} is not a history: it lacks the columns {', '.join(missing)}"
        )
    return file


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's type if it has no message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def read_footer(path: Path) -> Footer:
    """Return the footer of a sealed history; raises `HistoryError` for any other file."""
    with open_sealed(path) as file:
        return footer_of(path, file.schema_arrow, file.metadata.num_rows)


def footer_of(path: Path, schema: pa.Schema, rows: int) -> Footer:
    """Return the footer in the `schema` of a file with this number of rows.

    Raises `HistoryError` if the footer is invalid or contradicts the number of rows.
    """
    texts = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in (schema.metadata or {}).items()
    }
    ours = {
        name.removeprefix(_PREFIX): text for name, text in texts.items() if name.startswith(_PREFIX)
    }
    if "schema" not in ours:
        return Footer(
            schema=1,
            digest=ours.get("digest", ""),
            n_ops=rows,
            cost=cost_of(rows, 10),
        )
    try:
        footer = msgspec.convert(ours, Footer, strict=False)
    except msgspec.ValidationError as error:
        raise HistoryError(f"{str(path)!r} has an invalid footer: {error}") from error
    if footer.schema != SCHEMA:
        raise HistoryError(
            f"{str(path)!r} has schema {footer.schema}; this version of harness reads schemas 1 "
            f"and {SCHEMA}; read the file with the version that wrote it"
        )
    if footer.order != BY_INDEX:
        raise HistoryError(
            f"{str(path)!r} holds a part of a history, in the order {footer.order!r}; this version "
            f"reads only whole histories, in the order {BY_INDEX!r}"
        )
    if footer.n_ops != rows:
        raise HistoryError(
            f"{str(path)!r} has an invalid footer: the footer counts "
            f"{counted(footer.n_ops, 'op')}, but the file holds {rows}"
        )
    return footer
