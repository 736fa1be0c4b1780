"""Frames of Kudu's RPC, and the handshake that opens a connection (Kudu's own page `rpc.md`).

A client first sends `GREETING`. Each frame then consists of its length (4 bytes, big-endian) and
two protobuf messages, a header and a body. Each message follows its own length, a varint. An answer
may end with *sidecars*: raw bytes, such as rows, whose offsets are in the header. The handshake
names the user by SASL PLAIN without a password, which servers without authentication accept.

The gateway (`targets.apache_kudu.gateway`) uses the server's side: `read_request` and the frames of
answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from targets.apache_kudu.wire.messages import (
    EMPTY,
    NEGOTIATE,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    RPC_ERROR,
)
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.protobuf import (
    Message,
    Values,
    WireFormatError,
    decode,
    decode_varint,
    encode,
    encode_varint,
)

GREETING: Final = b"hrpc\x09\x00\x00"
LENGTH_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of an answer. Kudu's own limit, `rpc_max_message_size`, is lower (50 MB)."""
NEGOTIATION_ID: Final = -33
CONTEXT_ID: Final = -3
_APPLICATION_FEATURES: Final = 1
_PLAIN: Final = "PLAIN"


class Step:
    """Steps of the handshake (Kudu's `NegotiatePB.NegotiateStep`)."""

    SUCCESS: Final = 0
    NEGOTIATE: Final = 1
    INITIATE: Final = 2


class RowsId(NamedTuple):
    """The id of a write. A server executes a write only once (Kudu's `RequestIdPB`)."""

    client_id: str
    seq_no: int
    first_incomplete: int
    attempt_no: int


class Asked(NamedTuple):
    """A request as a server reads it. `timeout_ms` is 0 if the client waits without a limit."""

    call_id: int
    service: str
    method: str
    timeout_ms: int
    rows_id: RowsId | None
    body: bytes


class Answer(NamedTuple):
    """An answer: the id of its call, whether it is an error, its body, and its sidecars."""

    call_id: int
    is_error: bool
    body: bytes
    sidecars: tuple[bytes, ...] = ()


def frame(header: Message, head: Values, body: bytes) -> bytes:
    """Encode a frame from its header and body."""
    first = encode(header, head)
    data = encode_varint(len(first)) + first + encode_varint(len(body)) + body
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def request_frame(
    call_id: int, method: Method, body: bytes, *, timeout_ms: int, rows_id: RowsId | None = None
) -> bytes:
    """Encode a request. The server gives up the request after `timeout_ms`."""
    head: Values = {
        "call_id": call_id,
        "remote_method": {"service": method.service, "method": method.name},
        "timeout_ms": timeout_ms,
    }
    if rows_id is not None:
        head["request_id"] = rows_id._asdict()
    return frame(REQUEST_HEADER, head, body)


def negotiate_frame() -> bytes:
    """Encode the first step of the handshake."""
    body = {
        "supported_features": [_APPLICATION_FEATURES],
        "step": Step.NEGOTIATE,
        "sasl_mechanisms": [{"mechanism": _PLAIN}],
        "authn_types": [{"sasl": {}}],
    }
    return frame(REQUEST_HEADER, {"call_id": NEGOTIATION_ID}, encode(NEGOTIATE, body))


def initiate_frame(user: str) -> bytes:
    """Encode the second step of the handshake. It carries the user's name."""
    body = {
        "step": Step.INITIATE,
        "token": f"\0{user}\0".encode(),
        "sasl_mechanisms": [{"mechanism": _PLAIN}],
    }
    return frame(REQUEST_HEADER, {"call_id": NEGOTIATION_ID}, encode(NEGOTIATE, body))


def context_frame() -> bytes:
    """Encode the empty connection context, which ends the handshake and has no answer."""
    return frame(REQUEST_HEADER, {"call_id": CONTEXT_ID}, encode(EMPTY, {}))


def read_step(answer: Answer) -> int:
    """Return the handshake step of an answer. Raises `WireFormatError`."""
    if answer.call_id != NEGOTIATION_ID:
        raise WireFormatError(f"an answer to call {answer.call_id} during the handshake")
    step: int | None = decode(NEGOTIATE, answer.body).get("step")
    if step is None:
        raise WireFormatError("an answer without a step during the handshake")
    return step


def read_answer(data: bytes) -> Answer:
    """Decode an answer, without its 4-byte length. Raises `WireFormatError`."""
    head_bytes, at = _sized(data, 0)
    head = decode(RESPONSE_HEADER, head_bytes)
    body, at = _sized(data, at)
    if at != len(data) or "call_id" not in head:
        raise WireFormatError("an answer has no id, or bytes behind its body")
    offsets = [*head["sidecar_offsets"], len(body)]
    if offsets != sorted(offsets):
        raise WireFormatError(f"the offsets of sidecars, {offsets}, are not in order")
    sidecars = tuple(bytes(body[begin:end]) for begin, end in itertools.pairwise(offsets))
    return Answer(head["call_id"], head.get("is_error", False), bytes(body[: offsets[0]]), sidecars)


def read_request(data: bytes) -> Asked:
    """Decode a request, without its 4-byte length. Raises `WireFormatError`."""
    head_bytes, at = _sized(data, 0)
    head = decode(REQUEST_HEADER, head_bytes)
    body, at = _sized(data, at)
    if at != len(data) or "call_id" not in head:
        raise WireFormatError("a request has no id, or bytes behind its body")
    remote, identity = head.get("remote_method", {}), head.get("request_id")
    if identity is not None and identity.keys() < {*RowsId._fields}:
        raise WireFormatError(f"the id of a request has only the fields {sorted(identity)}")
    return Asked(
        head["call_id"],
        remote.get("service", ""),
        remote.get("method", ""),
        head.get("timeout_ms", 0),
        None if identity is None else RowsId(**identity),
        bytes(body),
    )


def answer_frame(call_id: int, body: bytes, sidecars: Sequence[bytes] = ()) -> bytes:
    """Encode an answer."""
    offsets = list(itertools.accumulate(map(len, sidecars), initial=len(body)))[:-1]
    head: Values = {"call_id": call_id, "sidecar_offsets": offsets}
    return frame(RESPONSE_HEADER, head, b"".join((body, *sidecars)))


def error_frame(call_id: int, code: int, message: str) -> bytes:
    """Encode an error of the RPC layer as the answer to a call."""
    body = encode(RPC_ERROR, {"message": message, "code": code})
    return frame(RESPONSE_HEADER, {"call_id": call_id, "is_error": True}, body)


def step_frame(step: int) -> bytes:
    """Encode a server's step of the handshake: SASL PLAIN, without encryption."""
    body: Values = {"step": step}
    if step == Step.NEGOTIATE:
        body |= {
            "supported_features": [_APPLICATION_FEATURES],
            "sasl_mechanisms": [{"mechanism": _PLAIN}],
            "authn_types": [{"sasl": {}}],
        }
    return answer_frame(NEGOTIATION_ID, encode(NEGOTIATE, body))


def _sized(data: bytes, at: int) -> tuple[memoryview, int]:
    size, at = decode_varint(data, at)
    if at + size > len(data):
        raise WireFormatError("a part of a frame is longer than the frame")
    return memoryview(data)[at : at + size], at + size
