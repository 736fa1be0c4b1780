"""HTTP: a template is a request, and says which part of the answer is the value.

    read = { request = "GET /kv/{key}", value = "node.value", nothing = [404] }
    write = 'PUT /kv/{key} {"value": {value}}'

In the path and the query, arguments are percent-encoded; in a body, they are JSON. A body may also
be a table. If a text in the table is just one placeholder, it becomes the argument itself.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import UsageError, shown
from harness.support.http1 import Response, fetch, hang_up, unread
from harness.support.loopback import dial
from targets.declared.protocols import (
    FAILURES,
    Answer,
    DeclinedError,
    MalformedError,
    NotSentError,
    Protocol,
    Session,
    Template,
    checked,
    described,
    settings_of,
)
from targets.declared.protocols.paths import WHOLE, check_path, value_at
from targets.declared.protocols.text import (
    ENCODINGS,
    PLACEHOLDER,
    decoded,
    encoded,
    filled,
    text_of,
)

__all__ = ["Exchange", "Http", "HttpSession", "from_base64"]

_REQUEST: Final = re.compile(r"([A-Z]+) (/\S*)(?:\s+(\S.*))?", re.DOTALL)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOVED: Final = frozenset({301, 307, 308})
"""Redirects that mean that the request had no effect.

After 302 and 303, a request may have had an effect: programs send these once they have stored a
form.
"""


_SUCCESS: Final = frozenset({200, 201})
_ACCEPTED: Final = 202
_ERRORS: Final = ("error", "errors")
_SUCCESSES: Final = ("ok", "success")
_UNSURE: Final = frozenset({408, 502, 504})
"""Statuses of timeouts and of gateways that lost the server, which may have done the request."""


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file: the headers of all requests, and a path for a greeting.

    A node must serve that path before the session uses a new connection, because Docker's port
    proxy accepts connections even for a dead container.
    """

    headers: dict[str, str] = {}
    hello: str = ""


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A template as written in the file."""

    request: str
    headers: dict[str, str] = {}
    body: Any = None
    value: str | None = None
    decode: Literal["value", "json", "base64", "text"] = "value"
    nothing: int | tuple[int, ...] = ()
    refused: int | tuple[int, ...] = ()
    done: int | tuple[int, ...] = ()
    optional: bool = False


class Filled(NamedTuple):
    """A request with its arguments."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Exchange(Template):
    """A request, and how to read its answer."""

    def __init__(
        self, method: str, path: str, body: object, written: Written, answer: Answer
    ) -> None:
        self.method, self.path, self.body, self.written = method, path, body, written
        self.answer = answer
        self._nothing, self._refused = map(_statuses, (written.nothing, written.refused))
        self._done = _statuses(written.done)

    def filled(self, arguments: Mapping[str, Any]) -> Filled:
        """Return the request for these arguments."""
        headers = {name: filled(text, arguments) for name, text in self.written.headers.items()}
        path = filled(self.path, arguments, _percent_encoded)
        return Filled(path, headers, _body_of(self.body, arguments))

    def value_of(self, response: Response) -> Any:
        """Return the value of an answer. Raises `DeclinedError` or `ValueError`."""
        written, status = self.written, response.status
        if self.answer != "raw" and response.may_be_cut(text=written.decode == "text"):
            raise MalformedError(
                f"status {status}: the answer may be cut, since it has no Content-Length and no "
                f"chunks: {shown(response.body)}"
            )
        if status in self._nothing:
            return False if self.answer == "whether" else None
        if status in self._refused:
            if self.answer == "whether":
                return False
            raise DeclinedError(_problem(response), elsewhere=300 <= status < 400)
        if status not in self._done:
            if status in _MOVED:
                raise DeclinedError(_problem(response), elsewhere=True)
            _check_status(response)
            if status == _ACCEPTED and self.answer not in {"ran", "raw"}:
                raise MalformedError(
                    f"{_problem(response)} (202 means that the work may not be done yet; if it is, "
                    "write `done = 202` in the template)"
                )
        if written.value is None and self.answer == "raw":
            return _raw(response.body)
        if written.value is None and self.answer in {"done", "whether"}:
            _check_success(_raw(response.body), response)
        if written.value is None and self.answer in {"ran", "done", "whether"}:
            return self.answer == "whether" or None
        path = WHOLE if written.value is None else written.value
        if written.decode == "text":
            if not response.body:  # an empty body may be a torn answer
                raise MalformedError("the body is empty")
            return checked(response.body.decode(), self.answer)
        answered = decoded(response.body)
        value = value_at(answered, path, optional=written.optional)
        if self.answer != "raw" and (value is None or path == WHOLE):
            _check_success(answered, response)
        if written.decode != "value" and value is not None:
            if not isinstance(value, str):
                raise MalformedError(f"{path!r} is {shown(value)}, and not a text to decode")
            value = decoded(value if written.decode == "json" else from_base64(value))
        if self.answer == "done" and value is False:
            raise DeclinedError(f"the answer's {path!r} is false")
        return checked(value, self.answer)


class Http(Protocol):
    """Systems with an HTTP API."""

    name = "http"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings_of(HttpSettings, settings)
        _check_headers("client.headers", self.settings.headers)
        hello = self.settings.hello
        if hello and not _REQUEST.fullmatch(f"GET {hello}"):
            raise UsageError(f"client.hello is {hello!r}: write a path, such as '/health'")

    def template(self, where: str, written: object, answer: Answer) -> Exchange:
        table = {"request": written} if isinstance(written, str) else written
        if not isinstance(table, Mapping):
            raise UsageError(
                f"{where} is {shown(written)}: write a request, such as 'GET /kv/{{key}}', or a "
                "table with `request` and what else it needs"
            )
        parsed = settings_of(Written, table, where)
        match = _REQUEST.fullmatch(parsed.request.strip())
        if match is None:
            raise UsageError(
                f"{where}: the request {parsed.request!r} must be a method, a path and maybe a "
                "body, such as 'GET /kv/{key}'"
            )
        method, path, inline = match.groups()
        if inline is not None and parsed.body is not None:
            raise UsageError(f"{where}: {parsed.request!r} already has a body; remove `body`")
        if parsed.decode == "text" and parsed.value is not None:
            raise UsageError(f'{where}.value: remove it; `decode = "text"` takes the whole body')
        _check_headers(f"{where}.headers", parsed.headers)
        nothing, refused = map(_statuses, (parsed.nothing, parsed.refused))
        if nothing and answer == "done":
            raise UsageError(
                f"{where}.nothing: this operation has no value; write the statuses with which the "
                "system refuses it as `refused`"
            )
        done = _statuses(parsed.done)
        listed = [*nothing, *refused, *done]
        twice = [status for status in listed if listed.count(status) > 1]
        if twice:
            raise UsageError(
                f"{where}: status {twice[0]} is twice in `nothing`, `refused` and `done`; "
                "write it once"
            )
        for status in listed:
            if not 200 <= status <= 599:
                raise UsageError(f"{where}: {status} is not a final status; they are 200 to 599")
        _check_meaning(where, nothing, refused, answer)
        check_path(f"{where}.value", parsed.value)
        return Exchange(method, path, inline if inline is not None else parsed.body, parsed, answer)

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> HttpSession:
        del observes
        session = HttpSession(env, address, self.settings)
        await session.connect()
        return session


class HttpSession(Session):
    """Requests to one node, over one connection for as long as the node keeps it open."""

    def __init__(self, env: ClientEnv, address: Address, settings: HttpSettings) -> None:
        super().__init__(env, address)
        self._settings = settings
        self._streams: Any = None

    async def connect(self) -> None:
        """Connect and send the greeting, unless there is a usable connection.

        A connection is unusable if the peer has closed it, or has sent data that answer no request.
        """
        if self._streams is not None and unread(self._streams[0]) is not None:
            await self.close()
        if self._streams is not None:
            return
        self._streams = await dial(*self.env.endpoint(self.address))
        if self._settings.hello:
            try:
                response = await self._send("GET", self._settings.hello, {}, b"")
                _check_status(response)
            except BaseException:
                await self.close()
                raise
            # The server answered and closed the connection, so it is alive: connect again.
            if self._streams is None:
                self._streams = await dial(*self.env.endpoint(self.address))

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        assert isinstance(template, Exchange)
        return await self.attempt(self.exchange(template, arguments), changes=changes)

    async def exchange(self, template: Exchange, arguments: Mapping[str, Any]) -> Any:
        """Send a template and return the value in the answer, without recording an attempt."""
        filled_in = template.filled(arguments)
        response = await self.fetch(
            template.method, filled_in.path, filled_in.headers, filled_in.body
        )
        return template.value_of(response)

    async def fetch(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        """Send one request and return the answer, with any status."""
        try:
            await self.connect()
        except FAILURES as error:
            raise NotSentError(described(error)) from error
        return await self._send(method, path, headers or {}, body)

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        fields = {"Host": self.address.node, **self._settings.headers, **headers}
        if body and not any(name.lower() == "content-type" for name in fields):
            fields["Content-Type"] = "application/json"
        reader, writer = self._streams
        response, lives_on = await fetch(reader, writer, method, path, fields.items(), body)
        if not lives_on:
            await self.close()
        return response

    async def close(self) -> None:
        if self._streams is not None:
            (_, writer), self._streams = self._streams, None
            await hang_up(writer)


def _check_status(response: Response) -> None:
    if not 200 <= response.status < 300:
        raise MalformedError(_problem(response))


def _check_success(answer: Any, response: Response) -> None:
    """Raise `MalformedError` for a table that reports an error despite its status."""
    if isinstance(answer, dict) and (
        any(answer.get(name) for name in _ERRORS)
        or any(answer.get(name) is False for name in _SUCCESSES)
    ):
        raise MalformedError(
            f"{_problem(response)} (an error with a status of success; if the answer has a part "
            "that tells success or has the value, write its path as `value`)"
        )


def _raw(body: bytes) -> Any:
    try:
        return decoded(body)
    except MalformedError:
        return body.decode("utf-8", "replace")


def from_base64(text: str) -> bytes:
    """Decode base64 strictly. Raises `ValueError`."""
    return b64decode(text, validate=True)


def _body_of(body: object, arguments: Mapping[str, Any]) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return filled(body, arguments, lambda _, value: encoded(value)).encode()
    return encoded(_filled_in(body, arguments)).encode()


def _filled_in(body: object, arguments: Mapping[str, Any]) -> Any:
    if isinstance(body, str):
        match = PLACEHOLDER.fullmatch(body)
        if match is None:
            return filled(body, arguments)
        name, encoding = match.groups()
        return ENCODINGS[encoding](name, arguments[name]) if encoding else arguments[name]
    if isinstance(body, Mapping):
        return {filled(k, arguments): _filled_in(v, arguments) for k, v in body.items()}
    if isinstance(body, Sequence):
        return [_filled_in(each, arguments) for each in body]
    return body


def _percent_encoded(name: str, value: Any) -> str:
    return quote(text_of(name, value), safe="")


def _statuses(written: int | tuple[int, ...]) -> tuple[int, ...]:
    return (written,) if isinstance(written, int) else written


def _check_meaning(
    where: str, nothing: tuple[int, ...], refused: tuple[int, ...], answer: Answer
) -> None:
    """Raise `UsageError` for statuses that cannot mean what the file says."""
    for status in (*nothing, *refused):
        if status in _SUCCESS:
            raise UsageError(
                f"{where}: status {status} is an answer with a value, or a success; remove it from "
                "`nothing` and `refused`, and name the part of the answer that tells as `value`"
            )
    unsure = {status for status in nothing if status >= 500} | ({*refused} & _UNSURE)
    if unsure and answer not in {"ran", "raw"}:
        raise UsageError(
            f"{where}: status {min(unsure)} does not say that nothing is there, or that nothing "
            "happened; remove it: the outcome is then a failed read, or an unknown change"
        )


def _check_headers(where: str, headers: Mapping[str, str]) -> None:
    for name, text in headers.items():
        if not _HEADER.fullmatch(name) or not text.isprintable():
            raise UsageError(f"{where}: {name!r} = {text!r} is not a header of HTTP")
        if name.lower() in {"content-length", "host", "transfer-encoding"}:
            raise UsageError(f"{where}: the harness sets {name!r} itself; remove it")


def _problem(response: Response) -> str:
    text = response.body.decode("utf-8", "replace").strip()
    return f"status {response.status}: {text}"
