"""Operations of vocabularies as templates of a protocol, and answers as values of completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.ops import Request
from targets.declared.protocols import Protocol, Session, Template

__all__ = ["Operations", "Speaker"]


class Speaker:
    """The operations of one vocabulary."""

    def __init__(self, protocol: Protocol, vocabulary: str, templates: Mapping[str, Template]) -> None:
        self._protocol, self._vocabulary, self._templates = protocol, vocabulary, templates

    async def prepare(self, session: Session) -> None:
        """Make what operations need in the system, such as a table; may be repeated."""

    async def perform(self, session: Session, request: Request) -> Any:
        """Do one operation and return the value of its completion."""
        raise NotImplementedError


class Operations:
    """All operations of one file."""

    def __init__(self, protocol: Protocol, written: Mapping[str, Any]) -> None:
        """Take the table `[operations]`; raises `UsageError`."""

    @property
    def vocabularies(self) -> frozenset[str]:
        """The vocabularies all of whose operations have templates."""
        return frozenset()

    def speaking(self, vocabulary: str) -> Speaker:
        """Return the operations of one vocabulary; raises `UsageError` if one is missing."""
        raise NotImplementedError
