"""Which format a file has."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.errors import HistoryError, located
from harness.formats.catalog_table import CatalogTable, is_catalog_table
from harness.formats.jepsen_edn import JepsenEdn, KvLog, is_edn, is_kv_log
from harness.formats.porcupine_etcd import EtcdLog, is_etcd_log
from harness.formats.register_table import RegisterTable, is_register_table
from harness.formats.sealed import SealedHistory, is_parquet
from harness.formats.source import Source

__all__ = ["SUFFIXES", "is_history_name", "open_history"]

HEAD_BYTES: Final = 1 << 16
_COMPRESSED: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
)
_NOTHING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:[\s,]+|;[^\n]*)*+")
SUFFIXES: Final = frozenset({".edn", ".log", ".parquet", ".tsv", ".txt"})

_FORMATS: Final[tuple[tuple[Callable[[bytes], bool], Callable[[Path], Source]], ...]] = (
    (is_parquet, SealedHistory),
    (is_etcd_log, EtcdLog),
    (is_catalog_table, CatalogTable),
    (is_register_table, RegisterTable),
    (is_kv_log, KvLog),
    (is_edn, JepsenEdn),
)


def is_history_name(path: Path) -> bool:
    """Whether a file found in a folder is taken for a history; others are left aside."""
    return path.suffix.lower() in SUFFIXES


def open_history(path: Path) -> Source:
    """The file as a source of ops; raises `HistoryError` if it is in none of the formats."""
    try:
        # Looking at the head of a pipe takes it away: the rest would be taken for the whole.
        # Asked beforehand, since opening a pipe that nobody writes to would wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise HistoryError(
                f"{str(path)!r} is not a regular file, and a history is read more than once; write "
                "it to a file and check that"
            )
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise HistoryError(f"cannot read {str(path)!r}: {error.strerror}") from error
    for recognises, source in () if _compression(head) else _FORMATS:
        if recognises(head):
            return source(path)
    raise located(path, 1, 1, _what_is_wrong(head))


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _COMPRESSED if head.startswith(magic)), None)


def _what_is_wrong(head: bytes) -> str:
    """Why a file that begins like this is no history."""
    if not head:
        return "the file is empty; a history has operations"
    if len(head) < HEAD_BYTES and _NOTHING.fullmatch(head):
        return "there is nothing in it but blanks and comments; a history has operations"
    if (name := _compression(head)) is not None:
        return f"the file is compressed ({name}); unpack it first"
    return (
        f"{head.lstrip()[:40].decode(errors='replace')!r} begins no "
        "history; known are Jepsen EDN, Porcupine's etcd and kv logs, the tables of registers and "
        "catalogs (see docs/checking.md), and our Parquet"
    )
