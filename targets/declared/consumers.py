"""Clients that poll logs, for systems that have no consumers of their own.

In the vocabulary `logs`, a client is assigned keys and polls them from their beginning. The file's
template for a poll reads one key from an offset on, so this module keeps the next offset of each
client and key. A poll that fails changes no offset.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from harness.errors import shown
from targets.declared.protocols import MalformedError

__all__ = ["Consumers"]

Messages = Callable[[str, int], Awaitable[Any]]
"""A function that reads the messages of a key from an offset on: a list of pairs, or null."""


class Consumers:
    """The assigned keys of each client, with the next offset of each key."""

    def __init__(self) -> None:
        self._next: dict[int, dict[str, int]] = {}

    def assign(self, process: int, keys: Sequence[str]) -> None:
        self._next[process] = dict.fromkeys(keys, 0)

    async def poll(self, process: int, messages: Messages) -> dict[str, list[Any]]:
        """Return the next messages of the client's keys. Raises `MalformedError`."""
        places = self._next.get(process, {})
        answer: dict[str, list[Any]] = {}
        following: dict[str, int] = {}
        for key, offset in places.items():
            answer[key] = _checked(key, await messages(key, offset))
            # The checker judges offsets that do not rise.
            following[key] = answer[key][-1][0] + 1 if answer[key] else offset
        places.update(following)
        return answer


def _checked(key: str, messages: Any) -> list[Any]:
    pairs = [] if messages is None else messages
    good = isinstance(pairs, list) and all(
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and type(pair[0]) is int
        and pair[0] >= 0
        and pair[1] is not None
        for pair in pairs
    )
    if not good:
        raise MalformedError(
            f"the log {key!r} is not a list of [offset, message]: {shown(messages)}"
        )
    return [list(pair) for pair in pairs]
