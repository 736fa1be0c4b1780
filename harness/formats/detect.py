"""Recognises the format of a history file by its content."""

from __future__ import annotations

import codecs
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from harness.errors import HistoryError, located
from harness.formats.edn.jepsen import JepsenEdn, KvLog, is_edn, is_kv_log
from harness.formats.json_ops import JsonOps, begins_json
from harness.formats.op_lines import OpLines, begins_log, has_op_lines
from harness.formats.source import Source
from harness.formats.tables import CatalogTable, RegisterTable, is_catalog_table, is_register_table
from harness.ops import Op
from harness.store import read_parquet

HEAD_BYTES: Final = 1 << 16
_COMPRESSED: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
)
_NOTHING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:[\s,]+|;[^\n]*)*+")
SUFFIXES: Final = frozenset(
    {".edn", ".json", ".jsonl", ".log", ".ndjson", ".parquet", ".tsv", ".txt"}
)
_SHARED_SUFFIXES: Final = frozenset({".json", ".jsonl", ".log", ".ndjson", ".txt"})
_OF_OPS: Final = tuple(re.compile(rb'[:"]%s\b' % name) for name in (b"process", b"type", b"f"))


def is_parquet(head: bytes) -> bool:
    """Whether a file that begins with `head` is Parquet."""
    return head.startswith(b"PAR1")


class SealedHistory:
    """A sealed history. It is read from the Parquet file alone, and its digest is checked."""

    format = "parquet"

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Op]:
        return iter(read_parquet(self._path))

    def position(self, index: int) -> tuple[int, int] | None:
        del index
        return None


_FORMATS: Final[tuple[tuple[Callable[[bytes], bool], Callable[[Path], Source]], ...]] = (
    (is_parquet, SealedHistory),
    (begins_log, OpLines),
    (is_catalog_table, CatalogTable),
    (is_register_table, RegisterTable),
    (begins_json, JsonOps),
    (is_kv_log, KvLog),
    (is_edn, JepsenEdn),
)


def is_history_file(path: Path) -> bool:
    """Whether a file in a folder is a history; other files are skipped.

    The suffix decides. If other files often have the same suffix, the file must contain ops. A file
    that is unreadable or compressed counts as a history, so that it is not skipped silently.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        return False
    if suffix not in _SHARED_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
    except OSError:
        return True
    if _compression(head):
        return True
    source = _source_of(head)
    return (source is not None and not _may_be_text(source, head)) or has_op_lines(path)


def _source_of(head: bytes) -> Callable[[Path], Source] | None:
    return next((source for recognises, source in _FORMATS if recognises(head)), None)


def _may_be_text(source: Callable[[Path], Source], head: bytes) -> bool:
    """Whether `head` begins like EDN or JSON, but without an op's keys: it may be plain text."""
    return source in {JsonOps, JepsenEdn} and not all(name.search(head) for name in _OF_OPS)


def open_history(path: Path) -> Source:
    """Open a file as a source of ops; raises `HistoryError` if its format is unknown."""
    try:
        # A pipe is refused: reading its beginning would consume it. Opening a pipe without a writer
        # would wait forever, so check this first.
        if not stat.S_ISREG(path.stat().st_mode):
            raise HistoryError(
                f"{str(path)!r} is not a regular file, and a history is read more than once; write "
                "it to a file and check that"
            )
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise HistoryError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if _compression(head):
        raise located(path, 1, 1, _what_is_wrong(head))
    source = _source_of(head)
    if (source is None or _may_be_text(source, head)) and has_op_lines(path):
        return OpLines(path)
    if source is None:
        raise located(path, 1, 1, _what_is_wrong(head))
    return source(path)


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _COMPRESSED if head.startswith(magic)), None)


def _what_is_wrong(head: bytes) -> str:
    """Return the reason why a file that begins with `head` is not a history."""
    if not head:
        return "the file is empty; a history has operations"
    if len(head) < HEAD_BYTES and _NOTHING.fullmatch(head):
        return "the file has only blanks and comments; a history has operations"
    if (name := _compression(head)) is not None:
        return f"the file is compressed ({name}); unpack it first"
    return (
        f"{head.lstrip()[:40].decode(errors='replace')!r} begins no "
        "history; the known formats are Jepsen's EDN, logs and JSON, Porcupine's kv logs, the "
        "tables of registers and catalogs (see docs/checking.md), and the harness's Parquet"
    )
