"""Jepsen's and Knossos's histories in EDN; and Porcupine's kv logs, which are EDN, too.

    {:process 0, :type :invoke, :f :append, :key "0", :value "x 0 0 y"}

One map per line, with the key next to the value; the value of an op is then the pair of both.
"""

from __future__ import annotations

import re
from typing import Final

from harness.formats.edn.jepsen import EdnOps

_BEGINNING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:[\s,]+|;[^\n]*)*+[\[({#]")
_FIRST_MAP: Final = re.compile(rb"\s*\{[^{}]{0,200}?:f\s+:(?:get|put|append)\b[^{}]{0,200}?:key\s")


def is_edn(head: bytes) -> bool:
    """Whether a file that begins like this can be EDN with a map or a collection of maps."""
    return _BEGINNING.match(head) is not None


def is_kv_log(head: bytes) -> bool:
    """Whether a file that begins like this is one of Porcupine's kv logs."""
    return _FIRST_MAP.match(head) is not None


class JepsenEdn(EdnOps):
    """One such file, read as a stream."""

    format = "jepsen-edn"


class KvLog(EdnOps):
    """One such log."""

    format = "porcupine-kv"
