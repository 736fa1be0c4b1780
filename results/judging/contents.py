"""What a sealed file holds, by its bytes: the digests that results are addressed by.

A footer says which history its file holds, but a file can be written again under an old footer,
and then an address made from footers alone would find the verdict of what was there before. So the
pages of every row group are hashed: SHA-256 over the bytes of each column as they lie in the file,
with its name, type and codec. Nothing is decoded, which makes it a hundredth of the cost of
judging. What a footer says besides (whose run it is, which label) stays out, so that equal
histories of two runs share their verdicts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from harness.errors import HistoryError
from harness.store.footer import Footer, first_line, footer_of, open_sealed

__all__ = ["Group", "digest_of", "read_contents"]

_READ_BYTES: Final = 1 << 20


class Group(msgspec.Struct, frozen=True):
    """One row group of a sealed file."""

    rows: int
    digest: str


def read_contents(
    path: Path, groups: tuple[int, int] | None = None
) -> tuple[Footer, tuple[Group, ...]]:
    """The footer, and the row groups `groups` (begin, end), or all; raises `HistoryError`."""
    with open_sealed(path) as file:
        footer = footer_of(path, file.schema_arrow, file.metadata.num_rows)
        begin, end = groups or (0, file.num_row_groups)
        if end > file.num_row_groups:
            raise HistoryError(f"{str(path)!r} has {file.num_row_groups} row groups, not {end}")
        try:
            with path.open("rb") as raw:
                found = tuple(_group(raw, file.metadata.row_group(n)) for n in range(begin, end))
        except (OSError, ValueError) as error:
            raise HistoryError(f"{str(path)!r} is damaged: {first_line(error)}") from error
    return footer, found


def digest_of(footer: Footer, groups: tuple[Group, ...]) -> str:
    """What tells these rows of a file from any others."""
    texts = [footer.digest, *(group.digest for group in groups)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _group(raw: IO[bytes], group: Any) -> Group:
    """Raises `ValueError` where the file ends before the group does."""
    total = hashlib.sha256(f"{group.num_rows}".encode())
    for number in range(group.num_columns):
        column = group.column(number)
        begin, size = column.data_page_offset, column.total_compressed_size
        if column.dictionary_page_offset:
            begin = min(begin, column.dictionary_page_offset)
        kind = f"{column.path_in_schema} {column.physical_type} {column.compression}"
        total.update(f"\n{kind} {size}\n".encode())
        raw.seek(begin)
        while size > 0:
            part = raw.read(min(size, _READ_BYTES))
            if not part:
                raise ValueError("it ends before its pages do")
            total.update(part)
            size -= len(part)
    return Group(group.num_rows, total.hexdigest())
