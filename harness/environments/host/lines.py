"""The lines a node writes: one JSON object each, for the driver to read and a log to keep.

| key   | value                                                                       |
|-------|-----------------------------------------------------------------------------|
| ts_ns | wall clock of the node, ns since the epoch                                  |
| level | `event` for `Env.event`, `control` for an answer to the driver              |
|       | (`harness.environments.host.control`), else a log line's (`info`, ...)      |
| event | the kind of the event; `log` for log lines, `obeyed` or `stopped` for       |
|       | answers                                                                     |
| node  | the node's name                                                             |
| data  | the event's data; for log lines `logger`, `message` and maybe `traceback`   |

A line that is no such object (an interpreter's last words) is kept as text. Only what nodes with
an `entry` write is read: a foreign program's own log is text in any case.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

CONTROL_LEVEL: Final = "control"
EVENT_LEVEL: Final = "event"
LINE_BYTES_MAX: Final = 1024 * 1024


class NodeLine(msgspec.Struct, frozen=True):
    """One line of a node's output."""

    ts_ns: int
    level: str
    event: str
    node: str
    data: dict[str, Any]


def _plain(value: Any) -> Any:
    """The `repr` of a value without JSON, rather than an error that kills the node."""
    return repr(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(NodeLine)


def encode_line(line: NodeLine) -> bytes:
    """The line with its newline; one longer than `LINE_BYTES_MAX` is cut and says so."""
    encoded = _encoder.encode(line)
    if len(encoded) >= LINE_BYTES_MAX:
        cut: dict[str, Any] = {"cut_bytes": len(encoded), "limit_bytes": LINE_BYTES_MAX}
        encoded = _encoder.encode(msgspec.structs.replace(line, data=cut))
    return encoded + b"\n"


def parse_line(raw: bytes) -> NodeLine | None:
    """The line as an object; `None` where it is just text."""
    if not raw.startswith(b"{"):
        return None
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
