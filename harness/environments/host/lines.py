"""The lines that a node writes for the driver and for its log; each line is a JSON object.

| key   | value                                                                       |
|-------|-----------------------------------------------------------------------------|
| ts_ns | wall clock of the node, ns since the epoch                                  |
| level | `event` for `Env.event`, `control` for an answer to the driver              |
|       | (`harness.environments.host.control`), else a log line's level (`info`)     |
| event | the kind of the event; `log` for log lines, `obeyed` or `stopped` for       |
|       | answers                                                                     |
| node  | the node's name                                                             |
| data  | the event's data; for log lines `logger`, `message` and maybe `traceback`   |

Any other line, such as an interpreter's fatal error, is kept as text. Only the output of nodes with
an `entry` is parsed; the output of a foreign program is always text.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

CONTROL_LEVEL: Final = "control"
EVENT_LEVEL: Final = "event"
LINE_BYTES_MAX: Final = 1024 * 1024


class NodeLine(msgspec.Struct, frozen=True):
    """One line of the output of a node with an `entry`."""

    ts_ns: int
    level: str
    event: str
    node: str
    data: dict[str, Any]


_encoder = msgspec.json.Encoder(enc_hook=repr)  # never raises, because an error would end the node
_decoder = msgspec.json.Decoder(NodeLine)


def encode_line(line: NodeLine) -> bytes:
    """Encode a line with its newline. The data are left out if it would exceed `LINE_BYTES_MAX`."""
    encoded = _encoder.encode(line)
    if len(encoded) >= LINE_BYTES_MAX:
        cut: dict[str, Any] = {"cut_bytes": len(encoded), "limit_bytes": LINE_BYTES_MAX}
        encoded = _encoder.encode(msgspec.structs.replace(line, data=cut))
    return encoded + b"\n"


def parse_line(raw: bytes) -> NodeLine | None:
    """Parse a line of output; `None` if it is plain text."""
    if not raw.startswith(b"{"):
        return None
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
