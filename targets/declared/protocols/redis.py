"""Redis, and what speaks its protocol (RESP 2): a template is a command.

    read = "GET {key}"
    write = ["SET", "{key}", "{value}"]

Values are stored as JSON texts. The words of a command are split before the arguments are filled
in, so an argument is always one word. An error reply to one command means that it did nothing;
after an error of a script, which may have written before, the outcome is unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import UsageError, shown
from targets.declared.protocols import (
    Answer,
    DeclinedError,
    MalformedError,
    Protocol,
    Session,
    Template,
    checked,
    settings_of,
)
from targets.declared.protocols.streams import ANSWER_BYTES_MAX, Stream
from targets.declared.protocols.text import decoded, encoded, filled

__all__ = ["Command", "Redis", "RedisSession"]

_ARRAY_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 8
_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA", "FCALL"})
_BEFORE: Final = frozenset({
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM",
    "NOREPLICAS", "NOSCRIPT", "READONLY", "TRYAGAIN",
})  # fmt: skip
"""The errors that Redis gives before a command, or the first write of a script, runs."""
_ELSEWHERE: Final = frozenset({"ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "READONLY"})
_CAS: Final = """
local now = redis.call('GET', KEYS[1]) or 'null'
if now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `primary`: use only nodes that say they are primaries. `wait`: after each change, `WAIT` for so
    many replicas at most `wait_ms`; if fewer have it, the outcome is unknown.
    """

    username: str = ""
    password: str = ""
    database: int = 0
    primary: bool = True
    wait: int = 0
    wait_ms: int = 500


class ReplyError(Exception):
    """An error reply."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class Command(Template):
    """A command with placeholders."""

    def __init__(self, words: Sequence[str], answer: Answer) -> None:
        self.words, self.answer = tuple(words), answer

    @property
    def is_script(self) -> bool:
        """Whether an error reply may follow a write."""
        return self.words[0].upper() in _SCRIPTS


class Transaction(Template):
    """The micro-operations of a transaction as commands on lists, between MULTI and EXEC."""


class Redis(Protocol):
    """Redis, by its own protocol."""

    name, port, knows_leader = "redis", 6379, True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings_of(RedisSettings, settings)
        for name in ("database", "wait", "wait_ms"):
            if getattr(self.settings, name) < 0:
                raise UsageError(
                    f"client.{name} is {getattr(self.settings, name)}: it must be 0 or more"
                )

    def template(self, where: str, written: object, answer: Answer) -> Command:
        if isinstance(written, str):
            try:
                words: Sequence[object] = shlex.split(written)
            except ValueError as error:
                raise UsageError(f"{where}: {written!r} is no command: {error}") from error
        else:
            words = written if isinstance(written, list | tuple) else ()
        texts = [word for word in words if isinstance(word, str)]
        if not texts or len(texts) < len(words) or not texts[0].strip():
            raise UsageError(
                f"{where} is {shown(written)}: write a command, such as 'GET {{key}}', or a list "
                "of its words"
            )
        return Command(texts, answer)

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        return {
            "register": {
                "read": Command(("GET", "{key}"), "value"),
                "write": Command(("SET", "{key}", "{value}"), "done"),
                "cas": Command(("EVAL", _CAS, "1", "{key}", "{old}", "{new}"), "whether"),
            },
            "list-append": {"txn": Transaction()},
        }

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> RedisSession:
        session = RedisSession(env, address, await Stream.open(env, address), self.settings)
        try:
            await session.greet(primary=self.settings.primary and not observes)
        except BaseException:
            await session.close()
            raise
        return session


class RedisSession(Session):
    """One connection: commands one at a time, each with its reply."""

    def __init__(
        self, env: ClientEnv, address: Address, stream: Stream, settings: RedisSettings
    ) -> None:
        super().__init__(env, address)
        self._stream, self._settings = stream, settings

    async def greet(self, *, primary: bool) -> None:
        """Log in, and check that the node serves. Raises `DeclinedError` if it does not."""
        settings = self._settings
        commands: list[tuple[str, ...]] = [("ROLE",) if self._settings.primary else ("PING",)]
        if settings.database:
            commands.insert(0, ("SELECT", str(settings.database)))
        if settings.password:
            name = (settings.username,) if settings.username else ()
            commands.insert(0, ("AUTH", *name, settings.password))
        for words in commands:
            (reply,) = await self.replies([words])
            if isinstance(reply, ReplyError):
                raise DeclinedError(str(reply), elsewhere=True)
        if primary and not (isinstance(reply, list) and reply[:1] == [b"master"]):
            raise DeclinedError(f"not a primary: its role is {shown(reply)}", elsewhere=True)

    async def leadership(self) -> tuple[bool, int]:
        (reply,) = await self.replies([("ROLE",)])
        if not isinstance(reply, list) or not reply or not isinstance(reply[0], bytes):
            raise MalformedError(f"ROLE answered {shown(reply)}")
        return reply[0] == b"master", 0

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        if isinstance(template, Transaction):
            exchange = self._transaction(arguments["mops"])
        else:
            assert isinstance(template, Command)
            exchange = self._command(template, arguments, waits=changes)
        return await self.attempt(exchange, changes=changes)

    async def _command(
        self, template: Command, arguments: Mapping[str, Any], *, waits: bool
    ) -> Any:
        words = [filled(word, arguments) for word in template.words]
        reply, *waited = await self.replies([words, *self._wait(waits=waits)])
        if isinstance(reply, ReplyError):
            _refuse(reply, sure=not template.is_script)
        self._check_wait(waited)
        return _value_of(reply, template.answer)

    async def _transaction(self, mops: Sequence[Any]) -> list[Any]:
        queued = [
            ("RPUSH", key, encoded(value)) if f == "append" else ("LRANGE", key, "0", "-1")
            for f, key, value in mops
        ]
        waits = any(f == "append" for f, _, _ in mops)
        commands = [("MULTI",), *queued, ("EXEC",), *self._wait(waits=waits)]
        opened, *replies = await self.replies(commands)
        words, ran, waited = (
            replies[: len(queued)],
            replies[len(queued)],
            replies[len(queued) + 1 :],
        )
        if isinstance(ran, ReplyError):
            why = next((each for each in (opened, *words) if isinstance(each, ReplyError)), ran)
            _refuse(why, sure=ran.code == "EXECABORT")
        if not isinstance(ran, list) or len(ran) != len(mops):
            raise MalformedError(f"EXEC answered {shown(ran)} to {len(mops)} commands")
        self._check_wait(waited)
        return [
            [f, key, value if f == "append" else _value_of(reply, "list")]
            for (f, key, value), reply in zip(mops, map(_whole, ran), strict=True)
        ]

    def _wait(self, *, waits: bool) -> list[tuple[str, ...]]:
        settings = self._settings
        asked = waits and settings.wait > 0
        return [("WAIT", str(settings.wait), str(settings.wait_ms))] if asked else []

    def _check_wait(self, replies: Sequence[Any]) -> None:
        for reply in replies:
            if not isinstance(reply, int) or reply < self._settings.wait:
                raise MalformedError(f"WAIT {self._settings.wait} answered {shown(reply)}")

    async def replies(self, commands: Sequence[Sequence[str]]) -> list[Any]:
        """Send commands together and return their replies, errors among them."""
        await self._stream.send(b"".join(_packed(words) for words in commands))
        return [await self._reply(0) for _ in commands]

    async def _reply(self, depth: int) -> Any:
        line = await self._stream.line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind not in {b":", b"$", b"*"}:
            raise MalformedError(f"not a reply of Redis: {shown(line)}")
        number = _integer(rest)
        if kind == b":":
            return number
        if number == -1:
            return None
        if kind == b"$":
            text = await self._stream.block(number)
            if await self._stream.block(2) != b"\r\n":
                raise MalformedError(f"a string does not end after {number} bytes")
            return text
        if not 0 <= number <= _ARRAY_MAX or depth >= _DEPTH_MAX:
            raise MalformedError(f"an array of {number} in depth {depth}")
        return [await self._reply(depth + 1) for _ in range(number)]

    async def close(self) -> None:
        await self._stream.close()


def _packed(words: Sequence[str]) -> bytes:
    data = [word.encode() for word in words]
    if sum(map(len, data)) > ANSWER_BYTES_MAX:
        raise MalformedError(f"a command of more than {ANSWER_BYTES_MAX} bytes")
    return b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%b\r\n" % (len(d), d) for d in data)


def _integer(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 20:
        raise MalformedError(f"not a number of Redis: {shown(text)}")
    return int(text)


def _refuse(error: ReplyError, *, sure: bool) -> None:
    """Raise `DeclinedError` if the command certainly did nothing, else `MalformedError`."""
    if sure or error.code in _BEFORE:
        raise DeclinedError(str(error), elsewhere=error.code in _ELSEWHERE)
    raise MalformedError(f"error reply: {error}")


def _whole(reply: Any) -> Any:
    if isinstance(reply, ReplyError):
        raise MalformedError(f"error reply in a transaction: {reply}")
    return reply


def _value_of(reply: Any, answer: Answer) -> Any:
    if answer == "whether":
        return _whether(reply)
    if answer == "ran":
        return None
    if answer == "done":
        if reply is None:
            raise DeclinedError("the command did nothing: its reply is nil")
        return None
    if isinstance(reply, list):
        return checked([_plain(each) for each in reply], answer)
    return checked(_plain(reply), answer)


def _plain(reply: Any) -> Any:
    """The JSON value of a reply; a status such as OK is none."""
    if reply is None or isinstance(reply, int):
        return reply
    if isinstance(reply, bytes):
        return decoded(reply)
    raise MalformedError(f"a reply without a value: {shown(reply)}")


def _whether(reply: Any) -> bool:
    if reply in (1, "OK"):
        return True
    if reply is None or reply == 0:
        return False
    raise MalformedError(f"the reply must be 1 or OK, or 0 or nil, and not {shown(reply)}")
