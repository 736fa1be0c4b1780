"""Operations on stores with versioned items: read, compute, and write if the versions are current.

etcd, ZooKeeper and memcached can store an item only if its version is still the one that was read.
This makes any pure function of items an atomic operation. Every request of such an operation is an
attempt of its own. If a write is refused, it had no effect, so the operation reads and tries again
until the client's timeout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from targets.declared.protocols import Session, Template

__all__ = ["Change", "Items", "Read", "Update", "VersionedSession", "Write"]

Items = Mapping[str, Any]
"""The values of items by key. An item that does not exist is null."""
Change = Callable[[Items, Mapping[str, Any]], tuple[Any, Items]]
"""A function that returns the answer and the items to write, from the items and the arguments."""


class Read(Template):
    """Read the item `{key}`."""


class Write(Template):
    """Set the item `{key}` to `{value}`, without a condition."""


class Update(Template):
    """Change some items by a pure function, atomically."""

    def __init__(self, keys: Callable[[Mapping[str, Any]], Sequence[str]], change: Change) -> None:
        self.keys, self.change = keys, change


class VersionedSession(Session):
    """A session with a store of versioned items."""

    @abstractmethod
    async def load(self, keys: Sequence[str]) -> Mapping[str, tuple[Any, Any]]:
        """Read items with their versions, all as of one moment. Every request is one attempt."""

    @abstractmethod
    async def store(self, items: Items, seen: Mapping[str, Any]) -> bool:
        """Write items if all versions in `seen` are still current; return whether they were.

        Every request is one attempt.
        """

    @abstractmethod
    async def put(self, key: str, value: Any) -> None:
        """Write one item, regardless of its version."""

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        del changes  # each request says itself whether it changes something
        if isinstance(template, Read):
            key = arguments["key"]
            return (await self.load([key]))[key][0]
        if isinstance(template, Write):
            return await self.put(arguments["key"], arguments["value"])
        assert isinstance(template, Update)
        keys = template.keys(arguments)
        while True:
            seen = await self.load(keys)
            values = {key: value for key, (value, _) in seen.items()}
            answer, changed = template.change(values, arguments)
            versions = {key: version for key, (_, version) in seen.items()}
            if not changed or await self.store(changed, versions):
                return answer
            self.had_no_effect()
