"""etcd, through its JSON gateway (`/v3/...`). Every operation is one transaction of etcd.

Values are stored as JSON. A template in the file is an HTTP request to the gateway, which
expects `{key:base64}` and `{value:base64}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import shown
from harness.exact import whole_number
from targets.declared.protocols import (
    Answer,
    DeclinedError,
    MalformedError,
    Template,
    settings_of,
)
from targets.declared.protocols.http import Exchange, Http, HttpSession, from_base64
from targets.declared.protocols.text import ENCODINGS, decoded, encoded
from targets.declared.protocols.updates import CAS, VersionedProtocol
from targets.declared.protocols.versioned import Items, Update, VersionedSession

__all__ = ["Etcd", "EtcdSession"]

_TXN: Final = "/v3/kv/txn"


class EtcdSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `serializable`: a member answers reads from its own state, without asking a quorum.
    """

    serializable: bool = False


class Cas(Update):
    """Set `{key}` to `{new}` if its value is `{old}`.

    This takes one request, unless `{old}` is null, which may also mean that the item is missing.
    """


class Etcd(VersionedProtocol):
    """etcd, by its JSON gateway."""

    name, port, knows_leader = "etcd", 2379, True
    several_items = True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings_of(EtcdSettings, settings)
        self._http = Http({"hello": "/version"})

    def template(self, where: str, written: object, answer: Answer) -> Exchange:
        return self._http.template(where, written, answer)

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        templates = super().defaults()
        cas = Cas(CAS.keys, CAS.change)
        return {**templates, "register": {**templates["register"], "cas": cas}}

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> EtcdSession:
        del observes
        return EtcdSession(await self._http.open(env, address), self.settings)


class EtcdSession(VersionedSession):
    """Requests to one member."""

    def __init__(self, http: HttpSession, settings: EtcdSettings) -> None:
        super().__init__(http.env, http.address)
        self._http, self._settings = http, settings

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        if isinstance(template, Exchange):
            return await self.attempt(self._http.exchange(template, arguments), changes=changes)
        if isinstance(template, Cas) and arguments["old"] is not None:
            key, old = arguments["key"], _json64(arguments["old"])
            unchanged = {"key": _base64(key), "target": "VALUE", "value": old}
            return await self._write({key: arguments["new"]}, [unchanged])
        return await super().perform(template, arguments, changes=changes)

    async def load(self, keys: Sequence[str]) -> Mapping[str, tuple[Any, Any]]:
        stale = self._settings.serializable
        gets = [{"request_range": {"key": _base64(k), "serializable": stale}} for k in keys]
        answer = await self.attempt(self._txn({"success": gets}), changes=False)
        if answer.get("succeeded") is not True:
            raise MalformedError(f"a read without conditions did not succeed: {shown(answer)}")
        return dict(zip(keys, map(_item_of, _responses(answer, len(keys))), strict=True))

    async def store(self, items: Items, seen: Mapping[str, Any]) -> bool:
        same = [{"key": _base64(k), "target": "MOD", "mod_revision": v} for k, v in seen.items()]
        return await self._write(items, same)

    async def put(self, key: str, value: Any) -> None:
        if not await self._write({key: value}, []):
            raise MalformedError("a transaction without conditions did not succeed")

    async def _write(self, items: Items, compare: list[Any]) -> bool:
        puts = [{"request_put": {"key": _base64(k), "value": _json64(v)}} for k, v in items.items()]
        asked = {"compare": compare, "success": puts}
        return await self.attempt(self._written(asked, len(puts)), changes=True)

    async def _written(self, asked: Mapping[str, Any], count: int) -> bool:
        answer = await self._txn(asked)
        succeeded = answer.get("succeeded", False)  # the gateway omits false values
        if not isinstance(succeeded, bool):
            raise MalformedError(f"`succeeded` is {shown(succeeded)}")
        if succeeded:
            _responses(answer, count)
        return succeeded

    async def _txn(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return await self._ask(_TXN, asked)

    async def server(self) -> str:
        status = await self._ask("/v3/maintenance/status", {})
        return str(status["header"].get("member_id"))

    async def leadership(self) -> tuple[bool, int]:
        status = await self._ask("/v3/maintenance/status", {})
        member, leader = status["header"].get("member_id"), status.get("leader")
        term = status.get("raftTerm")
        number = whole_number(term) if isinstance(term, str) else None
        if not isinstance(member, str) or number is None:
            raise MalformedError(f"not a status of etcd: {shown(status)}")
        return member == leader, number

    async def _ask(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        response = await self._http.fetch("POST", path, body=encoded(asked).encode())
        text = response.body.decode("utf-8", "replace").strip()
        if response.status == 400:  # 400 means that etcd found the request malformed
            raise DeclinedError(f"status 400: {text}")
        if response.status != 200:
            raise MalformedError(f"status {response.status}: {text}")
        answer = decoded(response.body)
        if not isinstance(answer, dict) or not isinstance(answer.get("header"), dict):
            raise MalformedError(f"not an answer of etcd: {shown(answer)}")
        return answer

    async def close(self) -> None:
        await self._http.close()


def _responses(answer: Mapping[str, Any], count: int) -> list[Any]:
    responses = answer.get("responses", [])
    if not isinstance(responses, list) or len(responses) != count:
        raise MalformedError(f"there must be {count} responses in {shown(answer)}")
    return responses


def _item_of(response: Any) -> tuple[Any, int]:
    part = response.get("response_range") if isinstance(response, dict) else None
    if not isinstance(part, dict) or not isinstance(part.get("header"), dict):
        raise MalformedError(f"not an answer to a range: {shown(response)}")
    kvs = part.get("kvs", [])
    if kvs == [] and "count" not in part:
        return None, 0
    if not isinstance(kvs, list) or len(kvs) != 1 or not isinstance(kvs[0], dict):
        raise MalformedError(f"not one item: {shown(part)}")
    value, revision = kvs[0].get("value"), kvs[0].get("mod_revision")
    number = whole_number(revision) if isinstance(revision, str) else None
    if not isinstance(value, str) or number is None:
        raise MalformedError(f"an item without value or revision: {shown(kvs[0])}")
    return decoded(from_base64(value)), number


def _base64(key: str) -> str:
    return ENCODINGS["base64"]("key", key)


def _json64(value: Any) -> str:
    return ENCODINGS["base64"]("value", value)
