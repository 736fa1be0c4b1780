"""The interface between a declared target and the protocol of its system, one module each.

A `Protocol` has the file's settings and parses the file's templates. It opens `Session`s, each of
which is one connection to one node. `targets.declared.operations` maps the operations of a
vocabulary to templates and calls `Session.perform`. The client opens and closes sessions, chooses
the node, and classifies the outcome by `Session.sent` and `Session.may_have_changed`.

Protocols never retry: one request is one attempt. An empty, torn or malformed answer, a value of
the wrong type, and a failed connection all raise exceptions. None of these ever becomes a value. An
answer is null only if the system itself reports that there is nothing (nil, no row, or a status
that the file lists).
"""

from __future__ import annotations

import contextlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import InternalError, UsageError, shown, unknown_name
from harness.errors import described as described_within
from harness.ops import Attempt
from targets.declared.document import TYPES
from targets.declared.protocols.shapes import Answer

__all__ = [
    "FAILURES",
    "NAMES",
    "Answer",
    "DeclinedError",
    "MalformedError",
    "NoValueError",
    "NotSentError",
    "Protocol",
    "Session",
    "Template",
    "checked",
    "described",
    "protocol_of",
    "session_with",
    "settings_of",
]

FAILURES: Final = (OSError, TimeoutError, EOFError, ValueError)
"""The errors of a failed request or a malformed answer. Drivers' errors are converted to these."""

_ERROR_CHARACTERS_MAX: Final = 300
_CLASSES: Final = {
    "etcd": "targets.declared.protocols.etcd:Etcd",
    "http": "targets.declared.protocols.http:Http",
    "memcached": "targets.declared.protocols.memcached:Memcached",
    "mysql": "targets.declared.protocols.mysql:MySql",
    "postgres": "targets.declared.protocols.postgres:Postgres",
    "program": "targets.declared.protocols.program:Program",
    "redis": "targets.declared.protocols.redis:Redis",
    "zookeeper": "targets.declared.protocols.zookeeper:ZooKeeper",
}
NAMES: Final = tuple(_CLASSES)
_QUOTED: Final = re.compile(r"`(\w+)`")

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class DeclinedError(Exception):
    """The system refused a request and did nothing, so the operation is a `fail`.

    `value` becomes the completion's value. `elsewhere` means that another node may accept the
    request, because this one redirects or is a read-only replica.
    """

    def __init__(self, why: str, *, value: Any = None, elsewhere: bool = False) -> None:
        super().__init__(why)
        self.value = value
        self.elsewhere = elsewhere


class MalformedError(ValueError):
    """The answer violates its protocol or its template."""


class NoValueError(MalformedError):
    """The answer lacks the part that its template takes, which may be a mistake of the template."""


class NotSentError(ConnectionError):
    """The connection had ended before the request, so nothing can have been sent."""


class Template:
    """A request with placeholders, parsed and checked. Each protocol has its own subclasses."""


class Session(ABC):
    """A connection to one node.

    After any exception other than `DeclinedError`, the client closes the session and opens another.
    """

    def __init__(self, env: ClientEnv, address: Address) -> None:
        self.address = address
        self.attempts: list[Attempt] = []
        self.sent = False
        """Whether the current operation has sent a request."""
        self.may_have_changed = False
        """Whether a request of the current operation may have had, or may still have, an effect."""
        self.env = env

    def begin(self) -> None:
        """Reset `sent`, `may_have_changed` and the attempts for the next operation."""
        self.attempts, self.sent, self.may_have_changed = [], False, False

    @abstractmethod
    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        """Fill a template with the arguments, send it, and return the value of the answer.

        `changes` says whether the request may have an effect. Raises `DeclinedError` for a refusal,
        and one of `FAILURES` for anything that is not a complete, well-formed answer.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection at once, without waiting for the peer. Safe to call twice."""

    async def leadership(self) -> tuple[bool, int]:
        """Return whether the node reports that it leads, and its term (0 if there are no terms).

        Only for protocols with `knows_leader`. Raises one of `FAILURES`, or `DeclinedError`.
        """
        raise InternalError(f"a session of {type(self).__name__} knows no leader")

    async def server(self) -> str | None:
        """Return the server's unique identity, or `None` if it has none. Raises like `leadership`.

        Through a proxy, this is the identity of the server that the proxy chose.
        """
        return None

    def had_no_effect(self) -> None:
        """Record that no request so far had an effect, so the operation may be tried again."""
        self.may_have_changed = False

    async def attempt(self, exchange: Awaitable[T], *, changes: bool) -> T:
        """Await one exchange with the node, and record it as an attempt."""
        start, outcome = self.env.clock.monotonic_ns(), "not answered"
        self.sent = True
        before, self.may_have_changed = self.may_have_changed, self.may_have_changed or changes
        try:
            answer = await exchange
            outcome = "ok"
        except DeclinedError as declined:
            outcome, self.may_have_changed = f"declined: {declined}", before
            raise
        except NotSentError as error:
            outcome, self.may_have_changed = described(error), before
            raise
        except FAILURES as error:
            outcome = described(error)
            raise
        finally:
            end = self.env.clock.monotonic_ns()
            self.attempts.append(Attempt(self.address.node, start, end, outcome))
        return answer


class Protocol(ABC):
    """A protocol, with the settings of one declaration file."""

    name: ClassVar[str]
    port: ClassVar[int | None] = None
    """The default port of its servers."""
    splits_transactions: ClassVar[bool] = False
    """Whether a transaction's template is a table, with one request per kind of micro-operation."""
    knows_leader: ClassVar[bool] = False
    """Whether its sessions can report whether their node leads."""
    joins_as_follower: ClassVar[bool] = False
    """Whether a node may first report that it follows, and later be one of several leaders."""
    addresses: Sequence[Address] = ()
    """Addresses of other nodes that its sessions ask, such as Sentinels."""
    in_simulation: ClassVar[bool] = True
    """Whether its sessions use only asyncio's streams, which the simulation supports."""

    @abstractmethod
    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Take the table `[client]` of the file, without `protocol`, `port` and `pinned`.

        Raises `UsageError` for a wrong setting or a missing library.
        """

    @abstractmethod
    def template(self, where: str, written: object, answer: Answer) -> Template:
        """Parse a template, whose key in the file is `where`, such as `operations.read`.

        Its placeholders have already been checked. Raises `UsageError`.
        """

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        """Return the built-in templates of each vocabulary, by operation."""
        return {}

    def setup(self, vocabulary: str) -> Sequence[Template]:
        """Return repeatable requests that create what the built-in templates need."""
        del vocabulary
        return ()

    @abstractmethod
    async def open(self, env: ClientEnv, address: Address, *, observes: bool = False) -> Session:
        """Connect to a node. A session that `observes` may use any node, such as a replica.

        Raises one of `FAILURES`, or `DeclinedError` if the node answers but does not serve clients.
        In both cases, no request was sent.
        """


@contextlib.asynccontextmanager
async def session_with(
    protocol: Protocol, env: ClientEnv, address: Address, *, observes: bool = False
) -> AsyncIterator[Session]:
    """Open a session for one request, and close it afterwards.

    No session stays open, because a declared system cannot notice the end of its run. A session
    that `observes` may use any node, for example a replica.
    """
    session = await protocol.open(env, address, observes=observes)
    try:
        session.begin()
        yield session
    finally:
        await session.close()


def protocol_of(name: str, settings: Mapping[str, Any]) -> Protocol:
    """Return the protocol with this name and these settings. Raises `UsageError`."""
    place = _CLASSES.get(name)
    if place is None:
        raise unknown_name("protocol", name, NAMES)
    module, _, attribute = place.partition(":")
    kind: type[Protocol] = getattr(importlib.import_module(module), attribute)
    return kind(settings)


def settings_of(kind: type[S], settings: Mapping[str, Any], where: str = "client") -> S:
    """Decode a table of the file (`[client]` or a template) as `kind`."""
    try:
        return msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(kind.__struct_fields__) or "none"
        problem = _QUOTED.sub(lambda match: TYPES.get(match[1], match[0]), str(error))
        raise UsageError(
            f"{where}: {problem}, in {shown(dict(settings))}; it may have: {fields}"
        ) from error


def checked(value: Any, answer: Answer) -> Any:
    """Return the value of an answer. Raises `MalformedError` if it has the wrong type."""
    if answer in {"ran", "done"}:
        return None
    if answer == "whether" and not isinstance(value, bool):
        raise MalformedError(f"the answer must be true or false, and not {shown(value)}")
    if answer == "list" and not isinstance(value, list | None):
        raise MalformedError(f"the answer must be a list, and not {shown(value)}")
    if answer == "pairs" and not isinstance(value, list | dict):
        raise MalformedError(f"the answer must be a table or list, and not {shown(value)}")
    return value


def described(error: BaseException) -> str:
    """Describe an error in one line of bounded length, for a history."""
    return described_within(error, _ERROR_CHARACTERS_MAX)
