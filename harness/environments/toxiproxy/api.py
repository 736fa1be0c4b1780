"""The routes of Toxiproxy's API (`api.go` and `toxic_collection.go` upstream).

Errors are `{"error", "status"}` under `text/plain`, as Go's `http.Error` makes them. Beyond
upstream: `POST /proxies/{proxy}/reset`, and `POST /addresses` with `listen`, `callers` (the folder
of a `CallerBook`), `proxies` (names, by caller), `hosts` (callers, by the address each calls from),
`otherwise` and `neutral` (callers), see `SharedAddress`.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from harness.environments.callers import CallerBook
from harness.environments.toxiproxy.addresses import SharedAddress
from harness.environments.toxiproxy.http import Request, Response
from harness.environments.toxiproxy.link import ToxicEntry
from harness.environments.toxiproxy.metrics import render_metrics
from harness.environments.toxiproxy.proxy import DIRECTIONS, ApiError, Proxy, Withheld
from harness.environments.toxiproxy.toxics import TOXICS, Toxic

__all__ = ["PROXIES_MAX", "VERSION", "Api"]

VERSION: Final = "2.12.0-harness"
PROXIES_MAX: Final = 4096

_TEXT: Final = "text/plain; charset=utf-8"


class _ProxyInput(msgspec.Struct):
    name: str = ""
    listen: str = ""
    upstream: str = ""
    enabled: bool | None = None


class _AddressInput(msgspec.Struct):
    listen: str
    callers: str
    proxies: dict[str, str]
    hosts: dict[str, str]
    otherwise: str
    neutral: str


class _ProxyChange(msgspec.Struct):
    listen: str | None = None
    upstream: str | None = None
    enabled: bool | None = None


class _ToxicInput(msgspec.Struct):
    name: str = ""
    type: str = ""
    stream: str = "downstream"
    toxicity: float = 1.0
    attributes: dict[str, Any] | None = None


class _ToxicChange(msgspec.Struct):
    toxicity: float | None = None
    attributes: dict[str, Any] | None = None


T = TypeVar("T")
Action = Callable[[bytes, list[str]], Awaitable[Response]]


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"bad request body: {error}") from error


def _attributes(kind: type[Toxic], given: dict[str, Any]) -> Toxic:
    try:
        return msgspec.convert(given, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"bad request body: {error}") from error


def _json(value: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value))


def _error(error: ApiError) -> Response:
    body = msgspec.json.encode({"error": error.message, "status": error.status})
    return Response(error.status, body + b"\n", _TEXT)


def _proxy_json(proxy: Proxy) -> dict[str, Any]:
    in_chain_order = sorted(proxy.toxics, key=lambda entry: DIRECTIONS.index(entry.stream))
    return {
        "name": proxy.name,
        "listen": proxy.listen,
        "upstream": proxy.upstream,
        "enabled": proxy.enabled,
        "toxics": in_chain_order,
    }


class Api:
    """All proxies, and the handler of requests."""

    def __init__(
        self, *, seed: int, metrics: bool, report: Callable[[Withheld], None] = lambda _: None
    ) -> None:
        """`report` hears of connections that did not get through, by no fault's doing."""
        self._seed = seed
        self._report = report
        self._proxies: dict[str, Proxy] = {}
        self._addresses: list[SharedAddress] = []
        self._routes: list[tuple[str, re.Pattern[str], Action]] = []
        self._route("POST", "/reset", self._reset)
        self._route("GET", "/proxies", self._proxy_index)
        self._route("POST", "/proxies", self._proxy_create)
        self._route("POST", "/populate", self._populate)
        self._route("GET", "/proxies/*", self._proxy_show)
        self._route("POST PATCH", "/proxies/*", self._proxy_update)
        self._route("DELETE", "/proxies/*", self._proxy_delete)
        self._route("POST", "/proxies/*/reset", self._proxy_reset)
        self._route("POST", "/addresses", self._address_create)
        self._route("GET", "/proxies/*/toxics", self._toxic_index)
        self._route("POST", "/proxies/*/toxics", self._toxic_create)
        self._route("GET", "/proxies/*/toxics/*", self._toxic_show)
        self._route("POST PATCH", "/proxies/*/toxics/*", self._toxic_update)
        self._route("DELETE", "/proxies/*/toxics/*", self._toxic_delete)
        self._route("GET", "/version", self._version)
        if metrics:
            self._route("GET", "/metrics", self._metrics)

    def _route(self, methods: str, path: str, action: Action) -> None:
        pattern = re.compile(path.replace("*", "([^/]+)"))
        self._routes += [(method, pattern, action) for method in methods.split()]

    async def handle(self, request: Request) -> Response:
        """Serve one request."""
        if request.headers.get("user-agent", "").startswith("Mozilla/"):
            return Response(403, b"User agent not allowed\n", _TEXT)
        path_known = False
        for method, pattern, action in self._routes:
            match = pattern.fullmatch(request.path)
            if match is None:
                continue
            path_known = True
            names = [urllib.parse.unquote(part) for part in match.groups()]
            if method == request.method:
                try:
                    return await action(request.body, names)
                except ApiError as error:
                    return _error(error)
        if path_known:
            return Response(405, b"", _TEXT)
        return Response(404, b"404 page not found\n", _TEXT)

    async def close(self) -> None:
        """Stop every proxy."""
        for address in self._addresses:
            await address.stop()
        for proxy in self._proxies.values():
            await proxy.stop()

    # --- proxies ---------------------------------------------------------------------------

    def _proxy(self, name: str) -> Proxy:
        if name not in self._proxies:
            raise ApiError(404, "proxy not found")
        return self._proxies[name]

    def _new_proxy(self, given: _ProxyInput) -> Proxy:
        if len(self._proxies) >= PROXIES_MAX and given.name not in self._proxies:
            raise ApiError(500, f"more than {PROXIES_MAX} proxies")
        return Proxy(given.name, given.listen, given.upstream, seed=self._seed, report=self._report)

    async def _reset(self, _body: bytes, _names: list[str]) -> Response:
        for proxy in self._proxies.values():
            await proxy.start()
            await proxy.remove_all_toxics()
        return Response(204)

    async def _proxy_index(self, _body: bytes, _names: list[str]) -> Response:
        return _json({name: _proxy_json(proxy) for name, proxy in sorted(self._proxies.items())})

    async def _proxy_create(self, body: bytes, _names: list[str]) -> Response:
        given = _decode(body, _ProxyInput)
        for field in ("name", "upstream"):
            if not getattr(given, field):
                raise ApiError(400, f"missing required field: {field}")
        if given.name in self._proxies:
            raise ApiError(409, "proxy already exists")
        proxy = self._new_proxy(given)
        # Taken before the first await, so that two requests cannot both create it.
        self._proxies[given.name] = proxy
        try:
            if given.enabled is not False:
                await proxy.start()
        except ApiError:
            del self._proxies[given.name]
            raise
        return _json(_proxy_json(proxy), 201)

    async def _populate(self, body: bytes, _names: list[str]) -> Response:
        given = _decode(body, list[_ProxyInput])
        for place, one in enumerate(given, start=1):
            for field in ("name", "upstream"):
                if not getattr(one, field):
                    raise ApiError(400, f"missing required field: {field} at proxy {place}")
        made: list[Proxy] = []
        for one in given:
            try:
                made.append(await self._add_or_replace(one))
            except ApiError as error:
                # What was made stays, and the answer says so.
                return _json(
                    {
                        "error": error.message,
                        "status": error.status,
                        "proxies": [_proxy_json(proxy) for proxy in made],
                    },
                    error.status,
                )
        return _json({"proxies": [_proxy_json(proxy) for proxy in made]}, 201)

    async def _add_or_replace(self, given: _ProxyInput) -> Proxy:
        existing = self._proxies.get(given.name)
        if existing is not None:
            if (existing.listen, existing.upstream) == (given.listen, given.upstream):
                return existing
            await existing.stop()
        proxy = self._new_proxy(given)
        if given.enabled is not False:
            await proxy.start()
        self._proxies[given.name] = proxy
        return proxy

    async def _proxy_show(self, _body: bytes, names: list[str]) -> Response:
        return _json(_proxy_json(self._proxy(names[0])))

    async def _proxy_update(self, body: bytes, names: list[str]) -> Response:
        proxy = self._proxy(names[0])
        change = _decode(body, _ProxyChange)
        await proxy.update(
            proxy.listen if change.listen is None else change.listen,
            proxy.upstream if change.upstream is None else change.upstream,
            enabled=proxy.enabled if change.enabled is None else change.enabled,
        )
        return _json(_proxy_json(proxy))

    async def _proxy_delete(self, _body: bytes, names: list[str]) -> Response:
        await self._proxy(names[0]).stop()
        self._proxies.pop(names[0], None)
        return Response(204)

    async def _proxy_reset(self, _body: bytes, names: list[str]) -> Response:
        return _json({"connections": self._proxy(names[0]).reset_connections()})

    async def _address_create(self, body: bytes, _names: list[str]) -> Response:
        given = _decode(body, _AddressInput)
        if len(self._addresses) >= PROXIES_MAX:
            raise ApiError(500, f"more than {PROXIES_MAX} addresses")
        proxies = {caller: self._proxy(name) for caller, name in given.proxies.items()}
        book = CallerBook(Path(given.callers))
        address = SharedAddress(
            given.listen,
            book,
            proxies,
            hosts=given.hosts,
            otherwise=given.otherwise,
            neutral=given.neutral,
            report=self._report,
        )
        await address.start()
        self._addresses.append(address)
        return _json({"listen": address.address}, 201)

    # --- toxics ------------------------------------------------------------------------------

    async def _toxic_index(self, _body: bytes, names: list[str]) -> Response:
        return _json(_proxy_json(self._proxy(names[0]))["toxics"])

    async def _toxic_create(self, body: bytes, names: list[str]) -> Response:
        proxy = self._proxy(names[0])
        given = _decode(body, _ToxicInput)
        stream = given.stream.lower()
        if stream not in DIRECTIONS:
            raise ApiError(400, "stream was invalid, can be either upstream or downstream")
        if given.type not in TOXICS:
            raise ApiError(400, "invalid toxic type")
        entry = ToxicEntry(
            name=given.name or f"{given.type}_{stream}",
            type=given.type,
            stream=stream,
            toxicity=given.toxicity,
            toxic=_attributes(TOXICS[given.type], given.attributes or {}),
        )
        await proxy.add_toxic(entry)
        return _json(entry)

    async def _toxic_show(self, _body: bytes, names: list[str]) -> Response:
        return _json(self._proxy(names[0]).toxic(names[1]))

    async def _toxic_update(self, body: bytes, names: list[str]) -> Response:
        proxy = self._proxy(names[0])
        entry = proxy.toxic(names[1])
        change = _decode(body, _ToxicChange)
        attributes = msgspec.to_builtins(entry.toxic) | (change.attributes or {})
        entry.toxic = _attributes(TOXICS[entry.type], attributes)
        if change.toxicity is not None:
            entry.toxicity = change.toxicity
        await proxy.update_toxic(entry)
        return _json(entry)

    async def _toxic_delete(self, _body: bytes, names: list[str]) -> Response:
        proxy = self._proxy(names[0])
        await proxy.remove_toxic(proxy.toxic(names[1]))
        return Response(204)

    # --- the rest ----------------------------------------------------------------------------

    async def _version(self, _body: bytes, _names: list[str]) -> Response:
        return _json({"version": VERSION})

    async def _metrics(self, _body: bytes, _names: list[str]) -> Response:
        text = render_metrics([proxy for _, proxy in sorted(self._proxies.items())])
        return Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
