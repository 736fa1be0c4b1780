"""Reads messages between nodes that the receiver has yet to handle: in flight, held or unread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from harness.environments.sim.clock import Entry
from harness.environments.sim.connection import Pipe
from harness.environments.sim.network import Attempt, Fabric
from harness.ops import NS_PER_S
from harness.replay.calls import Namer, mark_text
from harness.replay.view import MessageView

CONTENT_MAX: Final = 240


def messages_of(fabric: Fabric, due: Iterable[Entry], name: Namer) -> list[MessageView]:
    """Return all messages: first those in flight, by arrival, then all others.

    `due` is the sorted heap of the world.
    """
    messages = list(_in_flight(due, name))
    for number, *ends in fabric.connections:
        for end in ends:
            messages += [_message(end.out, item, "held", None, name) for item in end.out.held]
            messages += [
                _message(end.incoming, frame, "unread", None, name) for frame in end.unread
            ]
        del number
    return messages


def is_message(action: Callable[..., object] | None) -> bool:
    """Whether an entry of the heap is a message in flight."""
    owner, name = getattr(action, "__self__", None), getattr(action, "__name__", "")
    if isinstance(owner, Pipe):
        return name in {"arrive", "_arrive_reset"}
    return isinstance(owner, Fabric) and name == "_syn_arrives"


def _in_flight(due: Iterable[Entry], name: Namer) -> Iterator[MessageView]:
    for at_ns, _, action, argument in due:
        if action is None or not is_message(action):
            continue
        owner = getattr(action, "__self__", None)
        if isinstance(owner, Pipe):
            yield _message(owner, argument, "in flight", at_ns, name)
        elif isinstance(argument, Attempt):
            yield MessageView(
                source=argument.source,
                destination=argument.address.node,
                state="in flight",
                arrives_s=at_ns / NS_PER_S,
                bytes=0,
                connection=0,
                what=f"opens a connection to {argument.address}",
                content="",
            )


def _message(pipe: Pipe, item: Any, state: str, at_ns: int | None, name: Namer) -> MessageView:
    is_frame = isinstance(item, bytes)
    if is_frame:
        what, content = name(item), content_of(item)
    else:
        what, content = mark_text(item), ""
    return MessageView(
        source=pipe.link.link.source,
        destination=pipe.link.link.destination,
        state=state,
        arrives_s=None if at_ns is None else at_ns / NS_PER_S,
        bytes=len(item) if is_frame else 0,
        connection=pipe.number // 2,
        what=what or "a message",
        content=content,
    )


def content_of(frame: bytes) -> str:
    """Return a frame in msgpack or JSON as text, or the first bytes of any other frame."""
    for decode in (msgspec.msgpack.decode, msgspec.json.decode):
        try:
            text = repr(decode(frame))
            break
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
            continue
    else:
        text = repr(frame[:CONTENT_MAX])
    return text if len(text) <= CONTENT_MAX else f"{text[: CONTENT_MAX - 3]}..."
