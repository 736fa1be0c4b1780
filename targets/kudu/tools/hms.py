"""`harness kudu hms ...`: compares and repairs Kudu's tables and their metastore entries.

The actions `list`, `check`, `fix`, `precheck` and `downgrade` follow Kudu's
`tools/tool_action_hms.cc`. A table and its entry belong together if they have the same table id.
`fix` creates missing entries, and overwrites entries that differ from Kudu's data. It drops entries
without a table only with `--drop_orphan_hms_tables`. `downgrade` converts entries to the format
from before the synchronization (`LEGACY_HANDLER`), which `fix` reverts.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.plugins import Said
from targets.hive import api
from targets.hive.metastore import kudu_rules as rules
from targets.kudu import messages as m
from targets.kudu.hms.client import HmsError
from targets.kudu.hms.entries import HmsCatalog, bad_hms_name, entry_of
from targets.kudu.master.catalog.records import TableRecord, TableState
from targets.kudu.tools.admin import Admin, ToolError
from targets.kudu.tools.data_table import listing


class Metastore:
    """Kudu's and Hive's catalogs, for the actions of `harness kudu hms`."""

    def __init__(self, admin: Admin, catalog: HmsCatalog, cluster_id: str) -> None:
        """Use `admin` to call the masters, and `catalog` to call the metastore on their behalf."""
        self.admin = admin
        self.catalog = catalog
        self.cluster_id = cluster_id

    async def entries(self) -> list[api.MetaTable]:
        """Return all entries of this cluster, including downgraded ones, sorted by name."""
        listed = await self.catalog.all_entries()
        return sorted(
            (entry for entry in listed if rules.is_legacy(entry) or self.catalog.is_ours(entry)),
            key=lambda entry: entry.full_name,
        )


async def _tables(admin: Admin) -> list[TableRecord]:
    listed = await admin.ask_leader(m.ListTablesRequest())
    tables = []
    for entry in sorted(listed.tables, key=lambda table: table.name):
        which = m.TableIdentifier(table_id=entry.id)
        table = await admin.ask_leader(m.GetTableSchemaRequest(table=which))
        tables.append(
            TableRecord(
                id=table.table_id,
                name=table.name,
                version=table.schema_version,
                schema=table.schema,
                partition_schema=table.partition_schema,
                next_column_id=0,
                num_replicas=table.num_replicas,
                state=TableState.RUNNING,
                comment=table.comment,
            )
        )
    return tables


@dataclass(frozen=True, slots=True)
class Difference:
    """A mismatch between a table and its metastore entry, one of which may be missing."""

    kind: str  # missing, orphan, inconsistent, badly named
    table: TableRecord | None
    entry: api.MetaTable | None
    why: str

    def __str__(self) -> str:
        name = self.entry.full_name if self.table is None and self.entry else ""
        return f"{self.kind}: {self.table.name if self.table else name}: {self.why}"


async def _compare(metastore: Metastore) -> list[Difference]:
    tables = await _tables(metastore.admin)
    entries = await metastore.entries()
    masters = metastore.catalog.addresses()
    return list(_differences(tables, entries, metastore.cluster_id, masters))


def _differences(
    tables: Sequence[TableRecord],
    entries: Sequence[api.MetaTable],
    cluster_id: str,
    masters: Sequence[str],
) -> Iterator[Difference]:
    by_id = {entry.parameters.get(rules.TABLE_ID, ""): entry for entry in entries}
    legacy = {entry.full_name: entry for entry in entries if rules.is_legacy(entry)}
    names: dict[str, None] = {}
    for table in tables:
        problem = bad_hms_name(table.name)
        if problem is not None:
            yield Difference("badly named", table, None, problem)
            continue
        entry = by_id.get(table.id)
        if entry is None:
            old = legacy.get(table.name)
            why = "it has no entry" if old is None else "its entry has the old format"
            yield Difference("missing", table, old, why)
            if old is not None:
                names[old.full_name] = None
            continue
        names[entry.full_name] = None
        due = entry_of(table, cluster_id, masters, entry)
        wrong = list(_unlike(entry, due))
        if wrong:
            yield Difference("inconsistent", table, entry, "; ".join(wrong))
    for entry in entries:
        if entry.full_name not in names:
            yield Difference("orphan", None, entry, "Kudu has no such table")


def _unlike(entry: api.MetaTable, due: api.MetaTable) -> Iterator[str]:
    if entry.full_name != due.full_name:
        yield f"the entry is named {entry.full_name}"
    if entry.columns != due.columns:
        yield f"its columns are {','.join(entry.columns)}, in Kudu {','.join(due.columns)}"
    for key, value in sorted(due.parameters.items()):
        stored = entry.parameters.get(key)
        if key != rules.TABLE_NAME and stored != value:
            yield f"{key} is {stored}, but should be {value}"


# --- actions -------------------------------------------------------------------------------------


async def _check(metastore: Metastore, given: argparse.Namespace) -> Said:
    del given
    differences = await _compare(metastore)
    if not differences:
        return Said("all tables have their entries")
    failed = "Illegal state: metadata check tool discovered inconsistencies"
    return Said("\n".join(map(str, differences)), 1, failed)


async def _fix(metastore: Metastore, given: argparse.Namespace) -> Said:
    lines, left = [], 0
    for difference in await _compare(metastore):
        verb = {
            "missing": "create" if given.create_missing_hms_tables else "",
            "inconsistent": "alter" if given.fix_inconsistent_tables else "",
            "orphan": "drop" if given.drop_orphan_hms_tables else "",
        }.get(difference.kind, "")
        if not verb:
            left += 1
            lines.append(f"not fixed: {difference}")
        elif given.dryrun:
            lines.append(f"would {verb}: {difference}")
        else:
            await _mend(metastore.catalog, difference)
            lines.append(f"{verb}: {difference}")
    failed = f"Illegal state: {left} differences remain" if left else ""
    return Said("\n".join(lines), int(left > 0), failed)


async def _mend(catalog: HmsCatalog, one: Difference) -> None:
    try:
        if one.table is None:
            assert one.entry is not None, "an orphan has an entry"
            ident = one.entry.parameters.get(rules.TABLE_ID, "")
            await catalog.drop(one.entry.full_name, ident)
        elif one.entry is None:
            await catalog.create_again(one.table)
        else:
            await catalog.overwrite(one.entry, one.table)
    except HmsError as error:
        raise ToolError(f"Remote error: {one}: {error}") from error


async def _list(metastore: Metastore, given: argparse.Namespace) -> Said:
    rows = [
        {
            "database": entry.database,
            "table": entry.name,
            "type": "LEGACY" if rules.is_legacy(entry) else "SYNCHRONIZED",
            rules.TABLE_NAME: entry.parameters.get(rules.TABLE_NAME, ""),
            rules.TABLE_ID: entry.parameters.get(rules.TABLE_ID, ""),
            rules.MASTER_ADDRESSES: entry.parameters.get(rules.MASTER_ADDRESSES, ""),
        }
        for entry in await metastore.entries()
    ]
    return listing(given, rows)


async def precheck(admin: Admin, given: argparse.Namespace) -> Said:
    """Check that the tables' names are valid in Hive, and distinct although Hive ignores case."""
    del given
    tables = await _tables(admin)
    counts = Counter(table.name.lower() for table in tables)
    lines = [f"{t.name}: another table has this name" for t in tables if counts[t.name.lower()] > 1]
    lines += [problem for t in tables if (problem := bad_hms_name(t.name.lower())) is not None]
    if not lines:
        return Said("all names are valid in Hive and distinct")
    return Said("\n".join(lines), 1, "Illegal state: rename these tables first")


async def _downgrade(metastore: Metastore, given: argparse.Namespace) -> Said:
    del given
    lines = []
    for entry in await metastore.entries():
        if rules.is_legacy(entry):
            continue
        try:
            await metastore.catalog.downgrade(entry)
        except HmsError as error:
            raise ToolError(f"Remote error: {entry.full_name}: {error}") from error
        lines.append(f"downgraded: {entry.full_name}")
    return Said("\n".join(lines))


async def use_metastore(action: str, metastore: Metastore, given: argparse.Namespace) -> Said:
    """Run an action of `harness kudu hms`. Raises `ToolError` if it fails."""
    try:
        return await HMS_ACTIONS[action](metastore, given)
    except HmsError as error:
        raise ToolError(f"Network error: {error}") from error


HMS_ACTIONS = {
    "hms check": _check,
    "hms fix": _fix,
    "hms list": _list,
    "hms downgrade": _downgrade,
}
"""The actions that need a metastore, by name."""
