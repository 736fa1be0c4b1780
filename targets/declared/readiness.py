"""Parses the key `ready` of a node table: the condition under which a node counts as ready."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from harness.cluster import Ready, ReadyCommand, ReadyHttp, ReadyLog, ReadyPort
from harness.errors import shown
from harness.exact import whole_number
from targets.declared.file import WITHIN_S_MAX, Declared, NodeTable

__all__ = ["readiness"]

_RULE: Final = (
    "write 'GET :8080/health', 'port 8080', 'log REGULAR-EXPRESSION', or a command as a list of "
    "words"
)


def readiness(
    declared: Declared,
    key: str,
    table: NodeTable,
    ports: Sequence[int],
    client_port: int,
    command: Callable[[str, Sequence[str]], tuple[str, ...]],
) -> Ready | None:
    """Return the condition under which a node is ready. Raises `UsageError`.

    It is the condition in the table at `key`. By default, the client port must accept connections.
    """
    written, within_s = table.ready, table.ready_within
    key = f"{key}.ready"
    if not 0 < within_s <= WITHIN_S_MAX:
        raise declared.error(
            f"{key}-within", f"is {within_s:g}; it must be above 0 and at most {WITHIN_S_MAX:g}"
        )
    usual = client_port if client_port in ports else next(iter(ports), None)
    if written is None:
        return None if usual is None else ReadyPort(usual, within_s)
    if not isinstance(written, str):
        return ReadyCommand(command(key, written), within_s)
    kind, _, rest = written.partition(" ")
    rest = rest.strip()
    if kind == "log" and rest:
        return ReadyLog(rest, within_s)
    match = re.fullmatch(r"(?::(\d+))?(/\S*)", rest) if kind == "GET" else None
    port = usual
    if match is None or match[1]:
        digits = match[1] if match else rest if kind == "port" else ""
        port = whole_number(digits)
        if port is None:
            raise declared.error(key, f"is {shown(written)}; {_RULE}")
    if port not in ports or port is None:
        raise declared.error(
            key, f"asks port {port}, which is not one of its ports {list(ports)}; add it to `ports`"
        )
    return ReadyPort(port, within_s) if match is None else ReadyHttp(port, match[2], within_s)
