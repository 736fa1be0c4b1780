"""Redis, and other systems with its protocol (RESP 2): a template is a command.

    read = "GET {key}"
    write = ["SET", "{key}", "{value}"]

Values are stored as JSON. The words of a command are split before the arguments are filled
in, so an argument is always one word. If Redis answers a single command with an error reply, the
command did nothing. After an error in a script, which may already have written, the outcome is
unknown. It is also unknown after an error of a proxy.
"""

from __future__ import annotations

import re
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
from targets.declared.protocols.redis_scripts import LEASE, POLL
from targets.declared.protocols.resp import ReplyError, replies
from targets.declared.protocols.sentinels import Sentinels
from targets.declared.protocols.streams import Stream
from targets.declared.protocols.text import decoded, encoded, filled
from targets.declared.protocols.updates import BANK

__all__ = ["Command", "Redis", "RedisSession"]

_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA", "FCALL"})
_BEFORE: Final = frozenset({
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM",
    "NOREPLICAS", "NOSCRIPT", "READONLY", "TRYAGAIN",
})  # fmt: skip
"""Errors that Redis returns before a command runs, or before a script's first write."""
_NOTHING_DONE: Final = _BEFORE | {"BUSYKEY", "CROSSSLOT", "DENIED", "ERR", "OOM", "WRONGTYPE"}
"""Errors after which a single command has done nothing. Proxies may have errors of their own."""
_LINK_FAILED: Final = re.compile(
    r"time|connect|\bconn\b|backend|upstream|server|reset", re.IGNORECASE
)
"""Words in proxies' reports of a lost server. Twemproxy, Envoy and others use the code `ERR`."""
_ELSEWHERE: Final = frozenset({"ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "READONLY"})
_LEASE_ARGUMENTS: Final = ("{key}", "{client}", "{lease_ms}")
_CAS: Final = """
local now = redis.call('GET', KEYS[1]) or 'null'
if now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


_RELEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
_TRANSFER: Final = """
local from = redis.call('HGET', KEYS[1], ARGV[1])
local to = redis.call('HGET', KEYS[1], ARGV[2])
if not from or not to then return redis.error_reply('ERR no such account') end
if tonumber(from) < tonumber(ARGV[3]) then return 0 end
redis.call('HINCRBY', KEYS[1], ARGV[1], -ARGV[3])
redis.call('HINCRBY', KEYS[1], ARGV[2], ARGV[3])
return 1
"""
_DRAIN: Final = """
local all = redis.call('LRANGE', KEYS[1], 0, -1)
redis.call('DEL', KEYS[1])
return all
"""


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `primary`: use only nodes that report that they are primaries. `sentinels`: use only the node
    that a Sentinel, such as "s1:26379", names as the primary of `master`. `wait`: after each
    change, send a `WAIT` for this number of replicas, with the timeout `wait_ms`. If fewer replicas
    confirm the change, its outcome is unknown.
    """

    username: str = ""
    password: str = ""
    database: int = 0
    primary: bool = True
    sentinels: tuple[str, ...] = ()
    master: str = "mymaster"
    wait: int = 0
    wait_ms: int = 500


class Command(Template):
    """A command with placeholders."""

    def __init__(self, words: Sequence[str], answer: Answer) -> None:
        self.words, self.answer = tuple(words), answer

    @property
    def is_script(self) -> bool:
        """Whether the command runs a script, which may write before it fails."""
        return self.words[0].upper() in _SCRIPTS


class Transaction(Template):
    """The micro-operations of a transaction, sent as commands between MULTI and EXEC."""

    def __init__(self, read: Sequence[str], answer: Answer) -> None:
        """Take the command that reads a key, and the type of its answer."""
        self.read, self.answer = tuple(read), answer

    def command(self, f: str, key: str, value: Any) -> Sequence[str]:
        """Return the command for one micro-operation."""
        if f == "r":
            return [filled(word, {"key": key}) for word in self.read]
        return ("RPUSH" if f == "append" else "SET", key, encoded(value))


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
        self.sentinels = Sentinels(self.settings.sentinels, self.settings.master)
        self.addresses = self.sentinels.addresses

    def template(self, where: str, written: object, answer: Answer) -> Command:
        if isinstance(written, str):
            try:
                words: Sequence[object] = shlex.split(written)
            except ValueError as error:
                raise UsageError(f"{where}: {written!r} is not a command: {error}") from error
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
            "list-append": {"txn": Transaction(("LRANGE", "{key}", "0", "-1"), "list")},
            "rw-register": {"txn": Transaction(("GET", "{key}"), "value")},
            "set": {
                "add": Command(("SADD", "{key}", "{value}"), "done"),
                "read": Command(("SMEMBERS", "{key}"), "list"),
            },
            "counter": {
                "add": Command(("INCRBY", "{key}", "{amount}"), "done"),
                "read": Command(("GET", "{key}"), "value"),
            },
            "bank": {
                "transfer": Command(
                    ("EVAL", _TRANSFER, "1", "{key}", "{from}", "{to}", "{amount}"), "whether"
                ),
                "read": Command(("HGETALL", "{key}"), "pairs"),
            },
            "queue": {
                "enqueue": Command(("RPUSH", "{key}", "{value}"), "done"),
                "dequeue": Command(("LPOP", "{key}"), "value"),
                "drain": Command(("EVAL", _DRAIN, "1", "{key}"), "list"),
            },
            "lock": {
                "acquire": Command(("SET", "{key}", "{client}", "NX"), "whether"),
                "release": Command(("EVAL", _RELEASE, "1", "{key}", "{client}"), "whether"),
            },
            "lease": {
                "acquire": Command(("EVAL", LEASE, "1", *_LEASE_ARGUMENTS), "value"),
                "release": Command(("EVAL", _RELEASE, "1", "{key}", "{client}"), "whether"),
            },
            "logs": {
                "send": Command(("RPUSH", "{key}", "{value}"), "value"),
                "poll": Command(("EVAL", POLL, "1", "{key}", "{offset}"), "list"),
            },
            "ids": {"generate": Command(("INCR", "{key}"), "value")},
        }

    def setup(self, vocabulary: str) -> Sequence[Template]:
        if vocabulary != "bank":
            return ()
        return [
            Command(("HSETNX", "bank", account, str(balance)), "ran")
            for account, balance in BANK.items()
        ]

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> RedisSession:
        stream = await Stream.open(env, address)
        session = RedisSession(env, address, stream, self.settings, self.sentinels)
        try:
            await session.greet(primary=self.settings.primary and not observes)
            if self.sentinels and not observes:
                await session.check_sentinels()
        except BaseException:
            await session.close()
            raise
        return session


class RedisSession(Session):
    """A connection with one command at a time in progress."""

    def __init__(
        self,
        env: ClientEnv,
        address: Address,
        stream: Stream,
        settings: RedisSettings,
        sentinels: Sentinels,
    ) -> None:
        super().__init__(env, address)
        self._stream, self._settings, self._sentinels = stream, settings, sentinels

    async def greet(self, *, primary: bool) -> None:
        """Log in, and check that the node serves. Raises `DeclinedError` if it does not."""
        settings = self._settings
        commands: list[tuple[str, ...]] = [("ROLE",) if primary else ("PING",)]
        if settings.database:
            commands.insert(0, ("SELECT", str(settings.database)))
        if settings.password:
            name = (settings.username,) if settings.username else ()
            commands.insert(0, ("AUTH", *name, settings.password))
        for words in commands:
            (reply,) = await replies(self._stream, [words])
            if isinstance(reply, ReplyError):
                raise DeclinedError(str(reply), elsewhere=True)
        if primary and not (isinstance(reply, list) and reply[:1] == [b"master"]):
            raise DeclinedError(f"not a primary: its role is {shown(reply)}", elsewhere=True)

    async def check_sentinels(self) -> None:
        """Raise `DeclinedError` unless a Sentinel names this node as the primary."""
        await self._sentinels.check(self.env, await self._run_id())

    async def _run_id(self) -> bytes:
        (reply,) = await replies(self._stream, [("INFO", "server")])
        lines = reply.split(b"\r\n") if isinstance(reply, bytes) else []
        run_ids = [line[7:] for line in lines if line.startswith(b"run_id:")]
        if len(run_ids) != 1:
            raise MalformedError(f"INFO names no run: {shown(reply)}")
        return run_ids[0]

    async def server(self) -> str:
        return (await self._run_id()).decode("ascii", "replace")

    async def leadership(self) -> tuple[bool, int]:
        (reply,) = await replies(self._stream, [("ROLE",)])
        if not isinstance(reply, list) or not reply or not isinstance(reply[0], bytes):
            raise MalformedError(f"ROLE answered {shown(reply)}")
        leads = reply[0] == b"master"
        if not leads or not self._sentinels:
            return leads, 0
        return True, await self._sentinels.term(self.env, await self._run_id())

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        if isinstance(template, Transaction):
            exchange = self._transaction(template, arguments["mops"])
        else:
            assert isinstance(template, Command)
            exchange = self._command(template, arguments, waits=changes)
        return await self.attempt(exchange, changes=changes)

    async def _command(
        self, template: Command, arguments: Mapping[str, Any], *, waits: bool
    ) -> Any:
        words = [filled(word, arguments) for word in template.words]
        reply, *waited = await replies(self._stream, [words, *self._wait(waits=waits)])
        if isinstance(reply, ReplyError):
            _refuse(reply, sure=not template.is_script)
        self._check_wait(waited)
        return _value_of(reply, template.answer)

    async def _transaction(self, template: Transaction, mops: Sequence[Any]) -> list[Any]:
        queued = [template.command(f, key, value) for f, key, value in mops]
        waits = any(f != "r" for f, _, _ in mops)
        commands = [("MULTI",), *queued, ("EXEC",), *self._wait(waits=waits)]
        opened, *answers = await replies(self._stream, commands)
        words, (ran, *waited) = answers[: len(queued)], answers[len(queued) :]
        if isinstance(ran, ReplyError):
            _refuse_transaction(opened, words, ran)
        if not isinstance(ran, list) or len(ran) != len(mops):
            raise MalformedError(f"EXEC answered {shown(ran)} to {len(mops)} commands")
        self._check_wait(waited)
        return [
            [f, key, _value_of(reply, template.answer) if f == "r" else _written(value, reply)]
            for (f, key, value), reply in zip(mops, ran, strict=True)
        ]

    def _wait(self, *, waits: bool) -> list[tuple[str, ...]]:
        settings = self._settings
        asked = waits and settings.wait > 0
        return [("WAIT", str(settings.wait), str(settings.wait_ms))] if asked else []

    def _check_wait(self, waited: Sequence[Any]) -> None:
        for reply in waited:
            if not isinstance(reply, int) or reply < self._settings.wait:
                raise MalformedError(f"WAIT {self._settings.wait} answered {shown(reply)}")

    async def close(self) -> None:
        await self._stream.close()


def _refuse(error: ReplyError, *, sure: bool) -> None:
    sure = sure and error.code in _NOTHING_DONE and not _LINK_FAILED.search(str(error))
    if sure or error.code in _BEFORE:
        raise DeclinedError(str(error), elsewhere=error.code in _ELSEWHERE)
    raise MalformedError(f"error reply: {error}")


def _refuse_transaction(opened: Any, words: Sequence[Any], ran: ReplyError) -> None:
    """Raise `DeclinedError` if certainly no command of the transaction ran.

    If Redis refused MULTI, the commands after it run individually.
    """
    why = next((each for each in (opened, *words) if isinstance(each, ReplyError)), ran)
    discarded = opened == "OK" and (ran.code == "EXECABORT" or ran.code in _BEFORE)
    if discarded or all(isinstance(each, ReplyError) for each in words):
        raise DeclinedError(str(why), elsewhere=why.code in _ELSEWHERE)
    raise MalformedError(f"error reply to a transaction: {why}")


def _written(value: Any, reply: Any) -> Any:
    if reply != "OK" and not isinstance(reply, int):
        raise MalformedError(f"a write in a transaction answered {shown(reply)}")
    return value


def _value_of(reply: Any, answer: Answer) -> Any:
    if answer == "whether":
        return _whether(reply)
    if answer == "ran":
        return None
    if answer == "done":
        if reply is None:
            raise DeclinedError("the command did nothing: its reply is nil")
        return None
    if answer == "raw":
        return _raw(reply)
    if isinstance(reply, list):
        values = [_plain(each) for each in reply]
        if answer != "pairs":
            return checked(values, answer)
        if len(values) % 2:
            raise MalformedError(f"the reply must be pairs: {shown(reply)}")
        return [list(pair) for pair in zip(values[::2], values[1::2], strict=True)]
    return checked(_plain(reply), answer)


def _raw(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    if isinstance(reply, list):
        return [_raw(each) for each in reply]
    return str(reply) if isinstance(reply, ReplyError) else reply


def _plain(reply: Any) -> Any:
    """Return the JSON value of a reply. A status such as OK is refused, since it has no value."""
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
