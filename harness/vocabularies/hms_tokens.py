"""The vocabulary `hms-tokens`: delegation tokens of metastores, which are texts that say nothing.

A token is issued to its `owner`, is renewed by its `renewer` alone, and ends when it is cancelled,
when it was not renewed in time, or at its greatest age. Whoever has it can act as the owner: what
runs somewhere else and has nothing but the token opens a connection with it.

Answers are objects. `result` is "ok", or why the metastore refused: "invalid-token" (it is not
there, has expired, or has another password) or "access-control" (somebody else renews it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from harness.vocabularies import Call, convert, names_of

INVALID_TOKEN: Final = "invalid-token"  # noqa: S105 - the name of an answer
ACCESS_CONTROL: Final = "access-control"


class Issue(Call, frozen=True):
    """Answers `token`, a new one."""

    f: ClassVar[str] = "issue"
    mutates: ClassVar[bool] = True
    owner: str
    renewer: str


class Renew(Call, frozen=True):
    """`user` asks for it. The token expires an interval from now, and at its greatest age."""

    f: ClassVar[str] = "renew"
    mutates: ClassVar[bool] = True
    token: str
    user: str


class Cancel(Call, frozen=True):
    """The token is none any more. Also ok where it was none before."""

    f: ClassVar[str] = "cancel"
    mutates: ClassVar[bool] = True
    token: str


class Verify(Call, frozen=True):
    """Open a connection with the token, and ask for its `owner`.

    The metastore is the one of this number in the client's list, counted round; the next one where
    that does not answer. A refusal is an ok answer, with "invalid-token" as its `result`.
    """

    f: ClassVar[str] = "verify"
    token: str
    metastore: int


TokenCall = Issue | Renew | Cancel | Verify
CALLS: Final[tuple[type[TokenCall], ...]] = (Issue, Renew, Cancel, Verify)
BY_NAME: Final[Mapping[str, type[TokenCall]]] = {call.f: call for call in CALLS}
MUTATIONS: Final = names_of(CALLS, mutates=True)
READS: Final = names_of(CALLS, mutates=False)


def call_of(f: str, value: Any) -> TokenCall:
    """An operation by its name and value; raises `UsageError` for what is not one of these."""
    return convert(BY_NAME, "hms-tokens", f, value)
