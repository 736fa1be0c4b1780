"""The vocabulary `hms-tokens`: delegation tokens of metastores, which are texts that say nothing.

A token is issued to its `owner`, is renewed by its `renewer` alone, and ends when it is cancelled,
when it was not renewed in time, or at its greatest age. A process that has the token can act as the
owner: it opens a connection with nothing else.

Answers are objects. `result` is "ok", or why the metastore refused: "invalid-token" (it is not
there, has expired, or has another password) or "access-control" (another user renews it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, get_args

from harness.vocabularies import Call, Vocabulary

INVALID_TOKEN: Final = "invalid-token"  # noqa: S105 - the name of an answer
ACCESS_CONTROL: Final = "access-control"


class _OfToken(Call, frozen=True):
    """An operation on one token, which sentences do not show."""

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        """The token."""
        del call
        return "a token"


class Issue(_OfToken, frozen=True):
    """Answers `token`, a new one."""

    f: ClassVar[str] = "issue"
    past: ClassVar[str] = "asked for"
    mutates: ClassVar[bool] = True
    owner: str
    renewer: str


class Renew(_OfToken, frozen=True):
    """`user` asks for it. The token expires an interval from now, and at its greatest age."""

    f: ClassVar[str] = "renew"
    past: ClassVar[str] = "renewed"
    mutates: ClassVar[bool] = True
    token: str
    user: str


class Cancel(_OfToken, frozen=True):
    """The token is none any more. Also ok where it was none before."""

    f: ClassVar[str] = "cancel"
    past: ClassVar[str] = "cancelled"
    mutates: ClassVar[bool] = True
    token: str


class Verify(_OfToken, frozen=True):
    """Open a connection with the token, and ask for its `owner`.

    The metastore is the one of this number in the client's list, counted round; the next one where
    that does not answer. A refusal is an ok answer, with "invalid-token" as its `result`.
    """

    f: ClassVar[str] = "verify"
    past: ClassVar[str] = "used"
    token: str
    metastore: int


TokenCall = Issue | Renew | Cancel | Verify
CALLS = Vocabulary[TokenCall]("hms-tokens", get_args(TokenCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of
