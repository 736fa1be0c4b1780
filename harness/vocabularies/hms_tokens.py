"""The vocabulary `hms-tokens`: delegation tokens of metastores, which are opaque strings.

A token is issued to its `owner` and may be renewed only by its `renewer`. It ends when it is
cancelled, when it is not renewed in time, or at its maximum age. A process that has the token can
act as the owner: it needs nothing else to open a connection.

Answers are objects. `result` is "ok", or the reason of a refusal: "invalid-token" (the token does
not exist, has expired, or has another password) or "access-control" (another user tries to renew
it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, get_args

from harness.vocabularies import Call, Vocabulary

INVALID_TOKEN: Final = "invalid-token"  # noqa: S105 - the name of an answer
ACCESS_CONTROL: Final = "access-control"


class _OfToken(Call, frozen=True):
    """An operation on one token. Explanations call it "a token" and do not quote the string."""

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        del call
        return "a token"


class Issue(_OfToken, frozen=True):
    """Issue a new token to `owner`. The answer has `token`."""

    f: ClassVar[str] = "issue"
    past: ClassVar[str] = "asked for"
    mutates: ClassVar[bool] = True
    owner: str
    renewer: str


class Renew(_OfToken, frozen=True):
    """Renew the token on behalf of `user`, for one interval, but not beyond its maximum age."""

    f: ClassVar[str] = "renew"
    past: ClassVar[str] = "renewed"
    mutates: ClassVar[bool] = True
    token: str
    user: str


class Cancel(_OfToken, frozen=True):
    """Cancel the token. The result is also "ok" if the token was not valid before."""

    f: ClassVar[str] = "cancel"
    past: ClassVar[str] = "cancelled"
    mutates: ClassVar[bool] = True
    token: str


class Verify(_OfToken, frozen=True):
    """Open a connection with the token, and ask for its `owner`.

    The number `metastore`, modulo the length of the client's list, selects a metastore from this
    list; if this metastore does not answer, the client uses the next one. A refusal is an `ok`
    answer with "invalid-token" as its `result`.
    """

    f: ClassVar[str] = "verify"
    past: ClassVar[str] = "used"
    token: str
    metastore: int


TokenCall = Issue | Renew | Cancel | Verify
CALLS = Vocabulary[TokenCall]("hms-tokens", get_args(TokenCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of
