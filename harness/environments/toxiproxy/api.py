"""The routes of Toxiproxy's API (`api.go` and `toxic_collection.go` upstream).

Errors are `{"error", "status"}` with the content type `text/plain`, as Go's `http.Error` sends
them. Upstream lacks two routes. One is `POST /proxies/{proxy}/reset`. The other is `POST
/addresses` (see `SharedAddress`), with the fields `listen`, `callers` (the folder of a
`CallerBook`), `proxies` (from caller to proxy name), `hosts` (from source address to caller),
`otherwise` and `neutral` (callers).
"""

from __future__ import annotations

import hmac
import re
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.environments.callers import CallerBook
from harness.environments.toxiproxy.addresses import SharedAddress
from harness.environments.toxiproxy.bodies import (
    AddressInput,
    ProxyChange,
    ProxyInput,
    ToxicChange,
    ToxicInput,
    attributes_of,
    read_body,
    read_list,
)
from harness.environments.toxiproxy.metrics import render_metrics
from harness.environments.toxiproxy.proxy import DIRECTIONS, ApiError, Proxy, Withheld
from harness.environments.toxiproxy.stub import ToxicEntry
from harness.environments.toxiproxy.toxics import TOXICS
from harness.support.exposition import CONTENT_TYPE
from harness.support.http1 import TEXT, Request, Response

VERSION: Final = "2.12.0-harness"
PROXIES_MAX: Final = 4096
TOKEN_VARIABLE: Final = "HARNESS_TOXIPROXY_TOKEN"  # noqa: S105 - no token
"""The environment variable with the token. Unlike arguments, other users cannot read it."""


Action = Callable[[bytes, list[str]], Awaitable[Response]]


def _json(value: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value))


def _error(error: ApiError) -> Response:
    body = msgspec.json.encode({"error": error.message, "status": error.status})
    return Response(error.status, body + b"\n", TEXT)


def _proxy_json(proxy: Proxy) -> dict[str, Any]:
    in_chain_order = sorted(proxy.toxics, key=lambda entry: DIRECTIONS.index(entry.direction))
    return {
        "name": proxy.name,
        "listen": proxy.listen,
        "upstream": proxy.upstream,
        "enabled": proxy.enabled,
        "toxics": in_chain_order,
        "Logger": {},  # upstream sends this field by accident, and clients may expect it
    }


def _require_complete(given: ProxyInput, *, where: str = "") -> None:
    for field in ("name", "upstream"):
        if not getattr(given, field):
            raise ApiError(400, f"missing required field: {field}{where}")


class Api:
    """The proxies of a server, and the handler of API requests."""

    def __init__(
        self,
        *,
        seed: int,
        metrics: bool,
        token: str = "",
        report: Callable[[Withheld], None] = lambda _: None,
    ) -> None:
        """With a `token`, every request must have the header `Authorization: Bearer TOKEN`.

        `report` gets the counts of connections that were held or dropped without a fault.
        """
        self._seed = seed
        self._authorization = f"Bearer {token}".encode() if token else b""
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
        authorization = request.headers.get("authorization", "")
        if self._authorization and not hmac.compare_digest(
            authorization.encode("latin-1"), self._authorization
        ):
            return Response(401, b"this server belongs to a run and requires its token\n", TEXT)
        # Unquoted first, so that a name with a quoted slash matches no route, as in upstream.
        path = urllib.parse.unquote(request.target.partition("?")[0])
        path_known = False
        for method, pattern, action in self._routes:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            path_known = True
            if method == request.method:
                if request.headers.get("user-agent", "").startswith("Mozilla/"):
                    return Response(403, b"User agent not allowed\n", TEXT)
                try:
                    return await action(request.body, list(match.groups()))
                except ApiError as error:
                    return _error(error)
        if path_known:
            return Response(405, b"", TEXT)
        return Response(404, b"404 page not found\n", TEXT)

    async def close(self) -> None:
        for address in self._addresses:
            await address.stop()
        for proxy in self._proxies.values():
            await proxy.stop()

    # --- proxies ---------------------------------------------------------------------------

    def _proxy(self, name: str) -> Proxy:
        if name not in self._proxies:
            raise ApiError(404, "proxy not found")
        return self._proxies[name]

    def _new_proxy(self, given: ProxyInput) -> Proxy:
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
        wanted = read_body(body, ProxyInput)
        _require_complete(wanted)
        if wanted.name in self._proxies:
            raise ApiError(409, "proxy already exists")
        proxy = self._new_proxy(wanted)
        # Registered before the first await, so that two requests cannot both create the proxy.
        self._proxies[wanted.name] = proxy
        try:
            if wanted.enabled:
                await proxy.start()
        except ApiError:
            del self._proxies[wanted.name]
            raise
        return _json(_proxy_json(proxy), 201)

    async def _populate(self, body: bytes, _names: list[str]) -> Response:
        made: list[Proxy] = []
        failure: dict[str, Any] = {}
        try:
            wanted = read_list(body, ProxyInput)
            for place, each in enumerate(wanted, start=1):
                _require_complete(each, where=f" at proxy {place}")
            for each in wanted:
                made.append(await self._add_or_replace(each))  # noqa: PERF401 - some stay if one fails
        except ApiError as error:
            failure = {"error": error.message, "status": error.status}
        # After a failure, the answer lists the proxies that were created. Like upstream, it has
        # null for an empty list.
        listed = [_proxy_json(proxy) for proxy in made] or None
        return _json(failure | {"proxies": listed}, failure.get("status", 201))

    async def _add_or_replace(self, wanted: ProxyInput) -> Proxy:
        existing = self._proxies.get(wanted.name)
        if existing is not None:
            if not await existing.differs(wanted.listen, wanted.upstream):
                return existing
            await existing.stop()
        proxy = self._new_proxy(wanted)
        if wanted.enabled:
            await proxy.start()
        self._proxies[wanted.name] = proxy
        return proxy

    async def _proxy_show(self, _body: bytes, names: list[str]) -> Response:
        return _json(_proxy_json(self._proxy(names[0])))

    async def _proxy_update(self, body: bytes, names: list[str]) -> Response:
        proxy = self._proxy(names[0])
        change = read_body(body, ProxyChange)
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
        wanted = read_body(body, AddressInput)
        if len(self._addresses) >= PROXIES_MAX:
            raise ApiError(500, f"more than {PROXIES_MAX} addresses")
        proxies = {caller: self._proxy(name) for caller, name in wanted.proxies.items()}
        book = CallerBook(Path(wanted.callers))
        address = SharedAddress(
            wanted.listen,
            book,
            proxies,
            hosts=wanted.hosts,
            otherwise=wanted.otherwise,
            neutral=wanted.neutral,
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
        wanted = read_body(body, ToxicInput)
        if wanted.stream.lower() not in DIRECTIONS:
            raise ApiError(400, "stream was invalid, can be either upstream or downstream")
        if wanted.type not in TOXICS:
            raise ApiError(400, "invalid toxic type")
        name = wanted.name or f"{wanted.type}_{wanted.stream}"
        proxy.require_free(name)
        entry = ToxicEntry(
            name=name,
            type=wanted.type,
            stream=wanted.stream,
            toxicity=wanted.toxicity,
            toxic=attributes_of(TOXICS[wanted.type], wanted.attributes, before=None),
        )
        await proxy.add_toxic(entry)
        return _json(entry)

    async def _toxic_show(self, _body: bytes, names: list[str]) -> Response:
        return _json(self._proxy(names[0]).toxic(names[1]))

    async def _toxic_update(self, body: bytes, names: list[str]) -> Response:
        proxy = self._proxy(names[0])
        entry = proxy.toxic(names[1])
        change = read_body(body, ToxicChange)
        entry.toxic = attributes_of(type(entry.toxic), change.attributes, before=entry.toxic)
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
        body = msgspec.json.encode({"version": VERSION}) + b"\n"
        return Response(200, body, "application/json;charset=utf-8")

    async def _metrics(self, _body: bytes, _names: list[str]) -> Response:
        text = render_metrics([proxy for _, proxy in sorted(self._proxies.items())])
        return Response(200, text.encode(), CONTENT_TYPE)
