"""The rules of Kudu's plug-in for the metastore (`KuduMetastorePlugin`), checked for every change.

Kudu's masters mark their own calls with `MASTER_EVENT` in the environment context. Only masters
create Kudu tables and change their columns. Other users may drop or rename a Kudu table through
Hive, and masters learn of the change from its event in the log. A change that breaks a rule is
refused with a MetaException before anything is written. The rules cover *synchronized* tables:
managed tables, and external tables with `external.table.purge`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from targets.hive.api import META, Context, MetastoreError, MetaTable

HANDLER_KEY: Final = "storage_handler"
HANDLER: Final = "org.apache.hadoop.hive.kudu.KuduStorageHandler"
LEGACY_HANDLER: Final = "com.cloudera.kudu.hive.KuduStorageHandler"
"""The storage handler of entries from before Kudu synchronized its catalog with Hive's."""
TABLE_ID: Final = "kudu.table_id"
TABLE_NAME: Final = "kudu.table_name"
CLUSTER_ID: Final = "kudu.cluster_id"
MASTER_ADDRESSES: Final = "kudu.master_addresses"
MASTER_EVENT: Final = "kudu.master_event"
CHECK_ID: Final = "kudu.check_id"
EXTERNAL: Final = "EXTERNAL"
PURGE: Final = "external.table.purge"
_OWN: Final = (TABLE_ID, TABLE_NAME, CLUSTER_ID, MASTER_ADDRESSES)


def is_kudu(table: MetaTable) -> bool:
    """Whether the table is stored in Kudu."""
    return table.parameters.get(HANDLER_KEY) == HANDLER


def is_legacy(table: MetaTable) -> bool:
    """Whether the entry is from before Kudu synchronized its catalog with Hive's."""
    return table.parameters.get(HANDLER_KEY) == LEGACY_HANDLER


def is_synchronized(table: MetaTable) -> bool:
    """Whether the table must be the same in Kudu's catalog and in Hive's."""
    is_external = _says(table, EXTERNAL)
    return is_kudu(table) and (not is_external or _says(table, PURGE))


def check_create(table: MetaTable, context: Context) -> None:
    """Raise `MetastoreError` if the rules forbid the creation of `table`."""
    if not is_kudu(table):
        _refuse_keys(table)
    elif is_synchronized(table):
        _demand(_is_of_master(context), table, "can only be created by Kudu's masters")
        _demand_keys(table)


def check_alter(before: MetaTable, after: MetaTable, context: Context) -> None:
    """Raise `MetastoreError` if the rules forbid the change from `before` to `after`."""
    if not is_kudu(after):
        _refuse_keys(after)
    if not is_synchronized(before) and not is_synchronized(after):
        return
    if is_synchronized(after):
        _demand_keys(after)
    unchecked = _of(context, CHECK_ID) == "false"
    same = before.parameters.get(TABLE_ID) == after.parameters.get(TABLE_ID)
    if is_synchronized(before) and is_synchronized(after):
        _demand(same or unchecked, before, f"must keep its {TABLE_ID}")
    if not _is_of_master(context):
        _demand(before.columns == after.columns, before, "can only get columns from Kudu's masters")
        alike = is_synchronized(before) == is_synchronized(after) and all(
            before.parameters.get(key) == after.parameters.get(key) for key in (EXTERNAL, PURGE)
        )
        _demand(alike, before, "can only become or stop being synchronized through Kudu's masters")


def check_drop(table: MetaTable, context: Context) -> None:
    """Raise `MetastoreError` if `table` is synchronized and `context` has another table id."""
    meant = _of(context, TABLE_ID)
    if meant is not None and is_synchronized(table):
        is_meant = table.parameters.get(TABLE_ID) == meant
        _demand(is_meant, table, f"does not have the {TABLE_ID} {meant}")


def _says(table: MetaTable, key: str) -> bool:
    return table.parameters.get(key, "").lower() == "true"


def _of(context: Context, key: str) -> str | None:
    return None if isinstance(context, msgspec.UnsetType) else context.get(key)


def _is_of_master(context: Context) -> bool:
    return _of(context, MASTER_EVENT) == "true"


def _demand(ok: bool, table: MetaTable, rule: str) -> None:
    if not ok:
        raise MetastoreError(META, f"Kudu table {table.full_name} {rule}")


def _demand_keys(table: MetaTable) -> None:
    for key in (TABLE_ID, MASTER_ADDRESSES):
        _demand(bool(table.parameters.get(key)), table, f"must have {key}")


def _refuse_keys(table: MetaTable) -> None:
    if is_legacy(table):
        return
    for key in _OWN:
        _demand(
            key not in table.parameters, table, f"is not stored in Kudu, so it may not have {key}"
        )
