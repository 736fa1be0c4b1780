"""Jepsen's and Knossos's histories in EDN; Porcupine's kv logs are EDN, too, with a `:key`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.ops import Op
from harness.store.edn import EdnOps

__all__ = ["JepsenEdn", "is_edn"]

_BEGINNING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:[\s,]+|;[^\n]*)*+[\[({#]")


def is_edn(head: bytes) -> bool:
    """Whether a file that begins like this can be EDN with a map or a collection of maps."""
    return _BEGINNING.match(head) is not None


class JepsenEdn:
    """One such file, read as a stream."""

    format = "jepsen-edn"

    def __init__(self, path: Path) -> None:
        self._ops = EdnOps(path)

    def __iter__(self) -> Iterator[Op]:
        return iter(self._ops)

    def position(self, index: int) -> tuple[int, int] | None:
        """Where the op with this index stands."""
        return self._ops.position(index)
