"""A client for clusters with Hive Metastores, which combines Kudu's client and Hive's client."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.plugins import Completion, Request
from harness.vocabularies import hms
from harness.vocabularies import kudu_hms as v
from targets.hive import api
from targets.hive.client import MetastoreClient
from targets.hive.client.client import Operation
from targets.hive.metastore.kudu_rules import MASTER_ADDRESSES, TABLE_ID
from targets.kudu.client.client import KuduClient


class TwoSidedClient:
    """A client that sends some operations to Kudu and the others to Hive."""

    def __init__(self, kudu: KuduClient, hive: MetastoreClient) -> None:
        self._kudu = kudu
        self._hive = hive

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        if not request.f.startswith("hive-"):
            return await self._kudu.invoke(request, timeout_s=timeout_s)
        call = v.call_of(request.f, request.value)

        async def do(operation: Operation) -> dict[str, Any]:
            return {"result": "ok", **await self._do(call, operation)}

        return await self._hive.perform(_in_hive(call), do, timeout_s=timeout_s)

    async def _do(self, call: v.HiveCall, operation: Operation) -> dict[str, Any]:
        hive = self._hive
        match call:
            case v.HiveDrop(name):
                await hive.call(operation, api.DropTable(*_split(name), hive.new_request_id()))
                return {}
            case v.HiveRename(name, new_name):
                table = await self._get(operation, name)
                database, short = _split(new_name)
                renamed = msgspec.structs.replace(table, database=database, name=short)
                change = api.AlterTable(*_split(name), renamed, hive.new_request_id())
                await hive.call(operation, change)
                return {"table_id": table.parameters.get(TABLE_ID)}
            case v.HiveGet(name):
                table = await self._get(operation, name)
                masters = table.parameters.get(MASTER_ADDRESSES, "")
                return {
                    "table_id": table.parameters.get(TABLE_ID),
                    "comment": table.parameters.get("comment"),
                    "masters": masters.split(","),
                }
            case v.HiveList():
                names = await hive.call(operation, api.GetTableMeta())
                return {"tables": [hms.full_name(*name) for name in names]}

    async def _get(self, operation: Operation, name: str) -> api.MetaTable:
        answer = await self._hive.call(operation, api.GetTable(*_split(name)))
        # A real metastore's client returns a `MetaTable`, a bundled one's returns plain data.
        is_table = isinstance(answer, api.MetaTable)
        return answer if is_table else msgspec.convert(answer, api.MetaTable)

    async def close(self) -> None:
        await self._kudu.close()
        await self._hive.close()


def _split(name: str) -> tuple[str, str]:
    database, _, short = name.rpartition(".")
    return database, short


def _in_hive(call: v.HiveCall) -> hms.HmsCall:
    match call:
        case v.HiveDrop(name, nonce):
            return hms.Drop(*_split(name), nonce)
        case v.HiveRename(name, new_name, nonce):
            return hms.Rename(*_split(name), *_split(new_name), nonce)
        case v.HiveGet(name):
            return hms.Get(*_split(name))
        case v.HiveList():
            return hms.List()
