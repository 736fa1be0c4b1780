"""Operations as templates of a protocol, and the system's answers as values of completions.

A vocabulary is the set of operations that a workload uses. In the file, the table `[operations]`
has the operations of registers and transactions by name (`read`, `write`, `cas`, `txn`). The
operations of any other vocabulary have a table of their own, such as `[operations.set]`. `setup`
lists requests that are sent before the first operation and may be repeated. The protocol has
defaults for operations that the file omits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from harness.errors import UsageError, shown, unknown_name
from harness.ops import Request
from harness.vocabularies.transactions import only_reads
from targets.declared.consumers import Consumers
from targets.declared.protocols import (
    DeclinedError,
    MalformedError,
    NoValueError,
    Protocol,
    Session,
    Template,
)
from targets.declared.protocols.shapes import SHAPES, Shape
from targets.declared.protocols.text import check_keys, check_names, check_needed, names_in

__all__ = ["Operations", "Speaker"]

SETUP: Final = "setup"
_EMPTY_READS_MIN: Final = 10
"""The number of reads without a value that make a template suspicious. A few may be stale reads."""
_DRAINED_MAX: Final = 100_000
_WHOLE_NUMBER: Final = re.compile(r"\s*-?[0-9]{1,40}(?:\.0+)?\s*")
_REFUSED: Final = "the system refused the operation {!r}"


_FLAT: Final = {"read": "register", "write": "register", "cas": "register", "txn": "list-append"}


class Speaker:
    """The operations of one vocabulary.

    Many systems store values as strings, or all numbers as floats, and answer 5 as "5" or 5.0. As
    long as clients have stored only whole numbers, such an answer means the number. If no answer
    has contained a number yet, a missing number is probably a mistake of the template, not of the
    system: the template takes the wrong part of the answer.
    """

    def __init__(
        self, vocabulary: str, templates: Mapping[str, Template], setup: Sequence[Template]
    ) -> None:
        self._vocabulary, self._templates, self._setup = vocabulary, templates, setup
        self._shapes = SHAPES[vocabulary]
        self._only_numbers = True
        self._answered_number = False
        self._acknowledged: set[str] = set()
        self._empty_reads = 0
        self._consumers = Consumers()

    @property
    def empty_reads(self) -> int:
        """The number of reads that found nothing after an acknowledged change of the same key.

        It is 0 if any answer had a number, and if there are too few such reads to tell. Otherwise
        no read has shown that its template looks where the changes go.
        """
        suspicious = self._only_numbers and not self._answered_number
        return self._empty_reads if suspicious and self._empty_reads >= _EMPTY_READS_MIN else 0

    async def prepare(self, session: Session) -> None:
        """Create objects that the operations need, such as tables. This may be repeated."""
        for template in self._setup:
            await session.perform(template, {}, changes=True)

    async def perform(self, session: Session, request: Request, *, process: int) -> Any:
        """Perform one operation and return the value of its completion.

        Raises `DeclinedError` if the operation did not happen, and one of `FAILURES` if it failed.
        """
        key = "" if request.f == "txn" else str((request.value or {}).get("key", ""))
        changed = request.f == "read" and key in self._acknowledged
        try:
            completion = await self._performed(session, request, process=process)
        except NoValueError:
            self._empty_reads += changed
            raise
        if request.f == "read":
            self._empty_reads += changed and not completion["value"]
        elif self._shapes[request.f].changes:
            self._acknowledged.add(key)
        return completion

    async def _performed(self, session: Session, request: Request, *, process: int) -> Any:
        f, shape = request.f, self._shapes.get(request.f)
        if shape is None:
            raise unknown_name(f"operation of {self._vocabulary!r}", f, self._shapes)
        self._only_numbers &= all(
            value is None or _is_whole(value) for value in _stored_by(request)
        )
        if f == "txn":
            return await self._transact(session, request.value)
        client = f"client-{process}"
        arguments = {"key": self._vocabulary, "client": client, **(request.value or {})}
        if f == "assign":
            self._consumers.assign(process, arguments["keys"])
            return {"result": "ok"}
        if f == "drain" and f not in self._templates and "dequeue" in self._templates:
            return {"result": "ok", "value": self._as_asked(await self._drain(session, arguments))}
        template = self._templates.get(f)
        if template is None:
            raise DeclinedError(f"the file has no template for {f!r}")
        if f == "poll":

            async def messages(key: str, offset: int) -> Any:
                place = {"key": key, "offset": offset, "client": client}
                return self._as_asked(await session.perform(template, place, changes=False))

            return {"result": "ok", "value": await self._consumers.poll(process, messages)}
        value = await session.perform(template, arguments, changes=shape.changes)
        if f == "acquire" and shape.answer == "value" and value is None:
            raise DeclinedError(_REFUSED.format(f), value={"result": "refused"})
        if shape.answer == "whether":
            if not value:
                why = "mismatch" if f == "cas" else "refused"
                raise DeclinedError(_REFUSED.format(f), value={"result": why})
            return {"result": "ok"}
        if shape.answer == "done":
            return {"result": "ok"}
        if f != "generate":
            value = self._as_asked(value)
        return {"result": "ok", "value": _CHECKS.get((self._vocabulary, f), _as_it_is)(value)}

    def _as_asked(self, value: Any) -> Any:
        """Return the value of an answer. Strings and floats that mean whole numbers become numbers.

        Raises `MalformedError` for a value without numbers, unless an earlier answer had numbers.
        """
        if not self._only_numbers:
            return value
        value = _numbers(value)
        # not for a bank: `_CHECKS` refuses balances that are not numbers
        if not self._answered_number and self._vocabulary != "bank":
            held = [each for each in _members(value) if each not in (None, "")]
            self._answered_number = any(map(_is_whole, held))
            if held and not self._answered_number:
                raise NoValueError(
                    f"{shown(value)} has none of the numbers that the harness stores; check which "
                    "part of the answer the template takes"
                )
        return value

    async def _transact(self, session: Session, mops: Sequence[Sequence[Any]]) -> Any:
        changes = not only_reads(list(mops))
        answer = await session.perform(self._templates["txn"], {"mops": mops}, changes=changes)
        whole = _transacted(mops, answer, lists=self._vocabulary == "list-append")
        return [[f, key, self._as_asked(value) if f == "r" else value] for f, key, value in whole]

    async def _drain(self, session: Session, arguments: Mapping[str, Any]) -> list[Any]:
        taken: list[Any] = []
        while len(taken) < _DRAINED_MAX:
            try:
                value = await session.perform(self._templates["dequeue"], arguments, changes=True)
            except DeclinedError as declined:
                if not taken:
                    raise
                raise MalformedError(
                    f"{len(taken)} elements were taken, then: {declined}"
                ) from None
            if value is None:
                return taken
            taken.append(value)
        raise MalformedError(f"the queue is not empty after {_DRAINED_MAX} elements")


class Operations:
    """All operations of one file."""

    def __init__(self, protocol: Protocol, written: Mapping[str, Any]) -> None:
        """Read the table `[operations]`. Raises `UsageError`."""
        self._protocol = protocol
        self._setup = tuple(
            self._parsed(where, each, Shape(frozenset(), "ran"))
            for where, each in _setup_of(written.get(SETUP, ()))
        )
        self._templates = {name: dict(ops) for name, ops in protocol.defaults().items()}
        # whether the file is for a single register, so that its templates cannot serve `registers`
        keyless = False
        entries = _entries(written)
        for where, vocabulary, f, text in entries:
            shape = SHAPES[vocabulary][f]
            template = self._parsed(where, text, shape)
            self._templates.setdefault(vocabulary, {})[f] = template
            keyless |= vocabulary == "register" and "key" not in names_in(text)
        check_keys(entries)
        register = self._templates.get("register", {})
        if not keyless:
            self._templates["registers"] = {**register, **self._templates.get("registers", {})}
        elif not written.get("registers"):
            self._templates.pop("registers", None)

    def _parsed(self, where: str, text: object, shape: Shape) -> Template:
        if "mops" not in shape.arguments:
            check_names(where, text, shape.arguments)
            check_needed(where, text, shape.needed)
        elif self._protocol.splits_transactions and isinstance(text, Mapping):
            check_names(where, text, shape.arguments)
            for f, statement in text.items():
                check_needed(f"{where}.{f}", statement, {"key"} if f == "r" else {"key", "value"})
        else:
            check_names(where, text, {"mops"})
            check_needed(where, text, {"mops"})
        return self._protocol.template(where, text, shape.answer)

    def _missing(self, vocabulary: str) -> list[str]:
        there = self._templates.get(vocabulary, {})
        return [f for f, s in SHAPES[vocabulary].items() if f not in there and not s.optional]

    @property
    def vocabularies(self) -> frozenset[str]:
        """Return the vocabularies for whose operations there are templates."""
        return frozenset(name for name in SHAPES if not self._missing(name))

    def speaking(self, vocabulary: str) -> Speaker:
        """Return the operations of one vocabulary. Raises `UsageError` if one is missing."""
        if vocabulary not in SHAPES:
            raise unknown_name("vocabulary", vocabulary, SHAPES)
        missing = self._missing(vocabulary)
        if missing:
            place = "operations" if vocabulary in _FLAT.values() else f"operations.{vocabulary}"
            raise UsageError(
                f"{place}: {', '.join(missing)} of the vocabulary {vocabulary!r} is missing, and "
                f"the protocol {self._protocol.name!r} has no default for it; write a template"
            )
        setup = (*self._protocol.setup(vocabulary), *self._setup)
        return Speaker(vocabulary, self._templates[vocabulary], setup)


def _setup_of(written: object) -> list[tuple[str, object]]:
    if isinstance(written, str):
        return [(f"operations.{SETUP}", written)]
    if not isinstance(written, list | tuple):
        raise UsageError(
            f"operations.{SETUP} is {shown(written)}: write a request, or a list of requests"
        )
    return [(f"operations.{SETUP}[{number}]", each) for number, each in enumerate(written)]


def _entries(written: Mapping[str, Any]) -> list[tuple[str, str, str, Any]]:
    entries = []
    for name, text in written.items():
        if name == SETUP:
            continue
        if name in _FLAT:
            entries.append((f"operations.{name}", _FLAT[name], name, text))
            continue
        if name not in SHAPES:
            owners = [each for each, shapes in SHAPES.items() if name in shapes]
            if owners:
                raise UsageError(
                    f"operations.{name}: an operation of the vocabulary {owners[0]!r} belongs in "
                    f"the table [operations.{owners[0]}]"
                )
            choices = [*_FLAT, SETUP, *SHAPES]
            raise UsageError(f"operations.{name}: {unknown_name('operation', name, choices)}")
        if not isinstance(text, Mapping):
            raise UsageError(
                f"operations.{name} is {shown(text)}: write a table with templates for "
                f"{', '.join(SHAPES[name])}"
            )
        for f, inner in text.items():
            if f not in SHAPES[name]:
                error = unknown_name(f"operation of {name!r}", f, SHAPES[name])
                raise UsageError(f"operations.{name}.{f}: {error}")
            entries.append((f"operations.{name}.{f}", name, f, inner))
    return entries


def _transacted(mops: Sequence[Any], answer: Any, *, lists: bool) -> list[Any]:
    if not isinstance(answer, list) or len(answer) != len(mops):
        raise MalformedError(f"the answer to {len(mops)} micro-operations is {shown(answer)}")
    whole = []
    for asked, mop in zip(mops, answer, strict=True):
        f, key, element = asked
        if not isinstance(mop, list | tuple) or len(mop) != 3 or [*mop[:2]] != [f, key]:
            raise MalformedError(f"the answer to {shown(asked)} is {shown(mop)}")
        value = mop[2]
        if f != "r":
            if value != element:
                raise MalformedError(f"the answer to {shown(asked)} is {shown(mop)}")
        elif lists:
            value = _list(value)
        whole.append([f, key, value])
    return whole


def _stored_by(request: Request) -> list[Any]:
    if request.f == "txn":
        return [element for f, _, element in request.value if f != "r"]
    asked = request.value or {}
    return [asked[name] for name in ("value", "old", "new", "amount") if name in asked]


def _is_whole(value: Any) -> TypeGuard[int]:
    return type(value) is int


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: _numbers(each) for name, each in value.items()}
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value.split(".")[0])
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _members(value: Any) -> list[Any]:
    return [inner for each in value for inner in _members(each)] if _is_list(value) else [value]


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _as_it_is(value: Any) -> Any:
    return value


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedError(f"the answer must be a list, and not {shown(value)}")
    return value


def _number(value: Any) -> int:
    if value is None:
        return 0
    if not _is_whole(value):
        raise MalformedError(f"the answer must be a whole number, and not {shown(value)}")
    return value


def _id(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise MalformedError(f"an id must be a number or a string, and not {shown(value)}")
    return value


def _offset(value: Any) -> int | None:
    if value is not None and not (_is_whole(value) and value >= 0):
        raise MalformedError(f"an offset must be a whole number, and not {shown(value)}")
    return value


def _token(value: Any) -> int:
    if not _is_whole(value):
        raise MalformedError(f"a fencing token must be a whole number, and not {shown(value)}")
    return value


def _balances(value: Any) -> Any:
    pairs = list(value.items()) if isinstance(value, dict) else value
    good = (
        isinstance(pairs, list)
        and pairs
        and all(isinstance(each, list | tuple) and len(each) == 2 for each in pairs)
    )
    if not good or not all(_is_whole(balance) for _, balance in pairs):
        raise MalformedError(f"the answer must map accounts to balances, and is {shown(value)}")
    return value


_CHECKS: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = {
    ("set", "read"): _list,
    ("counter", "read"): _number,
    ("bank", "read"): _balances,
    ("queue", "drain"): _list,
    ("ids", "generate"): _id,
    ("logs", "send"): _offset,
    ("lease", "acquire"): _token,
}
