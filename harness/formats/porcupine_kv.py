"""Porcupine's kv logs: EDN, one map a line, with the key beside the value.

    {:process 0, :type :invoke, :f :append, :key "0", :value "x 0 0 y"}

They are read as Jepsen's EDN is; the value of an op is then the pair of key and value.
"""

from __future__ import annotations

import re
from typing import Final

from harness.formats.jepsen_edn import JepsenEdn

__all__ = ["KvLog", "is_kv_log"]

_FIRST_MAP: Final = re.compile(rb"\s*\{[^{}]{0,200}?:f\s+:(?:get|put|append)\b[^{}]{0,200}?:key\s")


def is_kv_log(head: bytes) -> bool:
    """Whether a file that begins like this is such a log."""
    return _FIRST_MAP.match(head) is not None


class KvLog(JepsenEdn):
    """One such log."""

    format = "porcupine-kv"
