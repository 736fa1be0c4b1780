"""The quorum of a role: the number of its nodes that can serve without the others."""

from __future__ import annotations

from harness.errors import choices_near
from targets.declared.file import Declared

__all__ = ["check_quorum", "quorum_of"]

_WORDS = ("majority", "all", "one")


def quorum_of(declared: Declared, role: str, count: int) -> int:
    """Return the quorum among `count` nodes of this role. Raises `UsageError`."""
    written = declared.declaration.quorum
    key = "quorum"
    if isinstance(written, dict):
        key = f"quorum.{role}"
        written = written.get(role, "majority")
    if isinstance(written, str):
        if written not in _WORDS:
            raise declared.error(
                key, f"is {written!r}; {choices_near(written, _WORDS)}, or a number of nodes"
            )
        return {"majority": count // 2 + 1, "all": count, "one": 1}[written]
    if not 1 <= written <= count:
        raise declared.error(
            key,
            f"is {written}; of {count} nodes of the role {role!r} it must be in 1 .. {count}",
        )
    return written


def check_quorum(declared: Declared, roles: dict[str, int]) -> None:
    """Raise `UsageError` for a quorum that is impossible with these numbers of nodes."""
    written = declared.declaration.quorum
    for role in written if isinstance(written, dict) else ():
        if role not in roles:
            raise declared.error(
                f"quorum.{role}", f"names no role of a node; {choices_near(role, list(roles))}"
            )
    for role, count in roles.items():
        quorum_of(declared, role, count)
