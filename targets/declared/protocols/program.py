"""A helper program in any language, which exchanges JSON objects by stdin and stdout, one per line.

A request has an id, the operation and its arguments:

    {"id": 1, "f": "write", "key": "register", "value": 5, "client": "client-0"}

The program makes one attempt at the node in its command line. It answers with the same id and
exactly one of

    {"id": 1, "ok": VALUE}     the operation happened; VALUE is its answer, or null
    {"id": 1, "fail": "why"}   the operation certainly did not happen
    {"id": 1, "info": "why"}   unknown

Each connection of a client is one process. The process is killed when the client leaves the node.
It is also killed if it does not answer in time, or gives another answer. The outcome of a change is
then unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os  # determinism: no node runs this module
import shlex
import shutil  # determinism: no node runs this module
import signal  # determinism: no node runs this module
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import UsageError, shown, unknown_name
from targets.declared.protocols import (
    Answer,
    DeclinedError,
    MalformedError,
    NotSentError,
    Protocol,
    Session,
    Template,
    checked,
    settings_of,
)
from targets.declared.protocols.shapes import SHAPES
from targets.declared.protocols.text import (
    PLACEHOLDER,
    check_names,
    decoded,
    encoded,
    filled,
    names_in,
)

__all__ = ["Program", "ProgramSession"]

_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 4096
_COMPLAINT_BYTES_MAX: Final = 2000
_OUTCOMES: Final = ("ok", "fail", "info")
_PLACES: Final = frozenset({"node", "host", "port"})


class ProgramSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file: the command, and the vocabularies that the program supports.

    The command is a string or a list, with the placeholders `{node}`, `{host}` and `{port}`.
    """

    command: str | list[str]
    vocabularies: tuple[str, ...] = ("register",)


class Operation(Template):
    """An operation that the program knows by its name."""

    def __init__(self, f: str, answer: Answer) -> None:
        self.f, self.answer = f, answer


class Program(Protocol):
    """A helper program that speaks JSON lines."""

    name = "program"
    in_simulation = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings_of(ProgramSettings, settings)
        command = self.settings.command
        try:
            self.words = shlex.split(command) if isinstance(command, str) else command
        except ValueError as error:
            raise UsageError(f"client.command: {command!r} is not a command: {error}") from error
        if not self.words:
            raise UsageError("client.command is empty: write the command of the program")
        check_names("client.command", self.words, _PLACES)
        if not {"host", "port"} <= set(names_in(self.words)):
            raise UsageError(
                f"client.command: {shown(command)} must have {{host}} and {{port}}, so that the "
                "program learns where its node is"
            )
        program = self.words[0]
        if not PLACEHOLDER.search(program) and shutil.which(program) is None:
            raise UsageError(f"client.command: there is no program {program!r}")
        for name in self.settings.vocabularies:  # determinism: no node runs this module
            if name not in SHAPES:
                raise UsageError(f"client.vocabularies: {unknown_name('vocabulary', name, SHAPES)}")

    def template(self, where: str, written: object, answer: Answer) -> Template:
        del answer
        raise UsageError(
            f"{where} is {shown(written)}: the program does the operations itself; remove it"
        )

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        return {
            name: {f: Operation(f, shape.answer) for f, shape in SHAPES[name].items()}
            for name in self.settings.vocabularies  # determinism: no node runs this module
        }

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> ProgramSession:
        del observes
        host, port = env.endpoint(address)
        place = {"node": address.node, "host": host, "port": port}
        words = [filled(word, place, lambda _, value: str(value)) for word in self.words]
        process = await asyncio.create_subprocess_exec(  # determinism: no node runs this module
            *words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,
        )
        return ProgramSession(env, address, process)


class ProgramSession(Session):
    """One process of the program, with one request at a time in progress."""

    def __init__(self, env: ClientEnv, address: Address, process: Process) -> None:
        super().__init__(env, address)
        self._process, self._number = process, 0
        self._complaints = b""
        self._listener = asyncio.ensure_future(self._listen())

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        assert isinstance(template, Operation)
        exchange = self._exchange({"f": template.f, **arguments})
        value = await self.attempt(exchange, changes=changes)
        if template.answer == "whether" and value is None:
            return True
        return checked(value, template.answer)

    async def _exchange(self, request: Mapping[str, Any]) -> Any:
        self._number += 1
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if self._process.returncode is not None or stdout.at_eof():
            raise NotSentError(f"the program has ended{self._why()}")
        stdin.write(encoded({"id": self._number, **request}).encode() + b"\n")
        await stdin.drain()
        try:
            line = await stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            raise MalformedError(f"a line of more than {_LINE_BYTES_MAX} bytes") from error
        except asyncio.IncompleteReadError as error:
            part = shown(error.partial)
            raise EOFError(f"the program ended after {part}{self._why()}") from error
        return self._answer(decoded(line), line)

    def _answer(self, answer: Any, line: bytes) -> Any:
        outcomes = [each for each in _OUTCOMES if isinstance(answer, dict) and each in answer]
        if len(outcomes) != 1 or answer.keys() != {"id", *outcomes}:
            raise MalformedError(f"not an answer: {shown(line)}")
        if isinstance(answer["id"], bool) or answer["id"] != self._number:
            raise MalformedError(f"{shown(line)} does not answer the request {self._number}")
        (outcome,) = outcomes
        content = answer[outcome]
        if outcome == "fail":
            raise DeclinedError(f"the program says: {shown(content)}")
        if outcome == "info":
            raise MalformedError(f"the program does not know: {shown(content)}")
        return content

    async def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while data := await stderr.read(_READ_BYTES):
            self._complaints = (self._complaints + data)[-_COMPLAINT_BYTES_MAX:]

    def _why(self) -> str:
        lines = self._complaints.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    async def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._listener.cancel()
        await asyncio.wait([self._listener])  # determinism: no node runs this module
        await self._process.wait()
