"""Our own sealed histories, read from the Parquet file alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.ops import Op
from harness.store import read_parquet


def is_parquet(head: bytes) -> bool:
    """Whether a file that begins like this is Parquet."""
    return head.startswith(b"PAR1")


class SealedHistory:
    """One such file. It is checked against its digest, and has no lines."""

    format = "parquet"

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Op]:
        return iter(read_parquet(self._path))

    def position(self, index: int) -> tuple[int, int] | None:
        """Nowhere: Parquet has no lines."""
        del index
        return None
