"""Encodes frames, which are msgpack arrays `[kind, call_id, method, body]`, and addresses."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec

from harness.env import FRAME_BYTES_MAX, Address
from harness.exact import whole_number

REQUEST: Final = 0
RESPONSE: Final = 1
ERROR: Final = 2

BUSY: Final = "ServiceUnavailable"
REMOTE: Final = "RemoteError"

R_co = TypeVar("R_co", bound=msgspec.Struct, covariant=True)


class Call(msgspec.Struct, Generic[R_co], frozen=True, array_like=True):
    """A request, whose class determines its method and the type of its answer.

    Each service has its own generic subclass of `Call`. For example, `class
    PingRequest(SomeCall[Pong])` is that service's method `Ping`, which is answered with a `Pong`.
    """

    service: ClassVar[str]
    method: ClassVar[str]
    answer_type: ClassVar[Any]
    decode_answer: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        (base,) = cls.__dict__["__orig_bases__"]
        (answer_type,) = get_args(base)
        if not isinstance(answer_type, TypeVar):
            cls.answer_type = answer_type
            cls.decode_answer = msgspec.msgpack.Decoder(answer_type).decode
            cls.method = f"{cls.service}.{cls.__name__.removesuffix('Request')}"


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A frame. Its body is decoded later, once the type of the body is known."""

    kind: int
    call_id: int
    method: str
    body: msgspec.Raw


FRAME_DECODER: Final = msgspec.msgpack.Decoder(Frame)
ERROR_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, str])
_encode: Final = msgspec.msgpack.Encoder().encode


def request_frame(call_id: int, request: Call[R_co]) -> bytes:
    """Encode a request. Raises `ValueError` if it does not fit into a frame."""
    frame = _encode((REQUEST, call_id, request.method, request))
    if len(frame) > FRAME_BYTES_MAX:
        raise ValueError(
            f"a request of {len(frame)} bytes for {request.method} does not fit into a frame of "
            f"{FRAME_BYTES_MAX}"
        )
    return frame


def error_frame(call_id: int, code: str, message: str) -> bytes:
    """Encode the frame by which a client learns that its call failed."""
    return _encode((ERROR, call_id, "", (code, message)))


def answer_frame(call_id: int, response: msgspec.Struct) -> bytes:
    """Encode an answer, or an error if the answer does not fit into a frame."""
    frame = _encode((RESPONSE, call_id, "", response))
    if len(frame) > FRAME_BYTES_MAX:
        message = f"an answer of {len(frame)} bytes; a frame holds {FRAME_BYTES_MAX}"
        return error_frame(call_id, REMOTE, message)
    return frame


def frame_name(frame: bytes) -> str:
    """Describe a frame for people by its method and call id."""
    try:
        head = FRAME_DECODER.decode(frame)
    except msgspec.DecodeError:
        return f"{len(frame)} bytes"
    if head.kind == REQUEST:
        return f"{head.method} (call {head.call_id})"
    return f"{'answer' if head.kind == RESPONSE else 'error'} to call {head.call_id}"


def parse_address(address: Address | str) -> Address:
    """Parse `"node:port"`. Raises `ValueError` for any other text."""
    if isinstance(address, Address):
        return address
    node, separator, port = address.rpartition(":")
    number = whole_number(port)
    if not separator or not node or number is None:
        raise ValueError(f"the address {address!r} is not NODE:PORT, e.g. m1:7051")
    return Address(node, number)
