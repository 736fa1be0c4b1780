"""The arguments of `harness kudu`, spelled as in Kudu's own tool."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

from harness.errors import UsageError, choices_near
from targets.kudu.master.catalog.validation import COLUMN_TYPES

KSCK_FORMATS: Final = ("plain_concise", "plain_full", "json_pretty", "json_compact")
LIST_FORMATS: Final = ("pretty", "json")
ROWS_MAX: Final = 1_000_000
BUCKETS_MAX: Final = 1_000_000
REPLICAS_MAX: Final = 99
COLUMNS: Final = "key:string,value:string"


class _Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` for mistakes and accepts no abbreviated options."""

    def __init__(self, **named: Any) -> None:
        super().__init__(allow_abbrev=False, **named)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.metavar or self.prog
            near = choices_near(str(value), [str(choice) for choice in action.choices])
            raise UsageError(f"{name} is {value!r}; {near} (see `{self.prog} --help`)")

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the action's name (`action`) and its arguments; raises `UsageError`."""
    parser = _Parser(
        prog="harness kudu",
        description="Inspect and administer a cluster of the bundled Kudu, with the arguments of "
        "Kudu's own tool.",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="the cluster that `harness up` started (default: the only one)",
    )
    modes = parser.add_subparsers(metavar="MODE", required=True)

    ksck = modes.add_parser("ksck", help="check the whole cluster")
    ksck.set_defaults(action="ksck")
    ksck.add_argument("--format", "--ksck_format", choices=KSCK_FORMATS, default=KSCK_FORMATS[0])
    ksck.add_argument("--checksum", action="store_true", help="compare the rows of all replicas")

    master = modes.add_parser("master", help="manage masters").add_subparsers(required=True)
    _lists(master.add_parser("list", help="list all masters and their roles"), "master list")
    for name, text in (("add", "add a running master"), ("remove", "remove a master")):
        changed = master.add_parser(name, help=text)
        changed.set_defaults(action=f"master {name}")
        changed.add_argument("address", metavar="NODE:PORT")
        if name == "remove":
            changed.add_argument(
                "--uuid", "--master_uuid", metavar="UUID", help="the UUID, if several masters match"
            )
    tserver = modes.add_parser("tserver", help="manage tablet servers").add_subparsers(
        required=True
    )
    _lists(tserver.add_parser("list", help="list all tablet servers"), "tserver list")

    table = modes.add_parser("table", help="manage tables").add_subparsers(required=True)
    listing = table.add_parser("list", help="list all tables")
    _lists(listing, "table list")
    listing.add_argument(
        "--tablets", "--list_tablets", action="store_true", help="also list tablets and replicas"
    )
    for name, text in (("describe", "print columns and partitions"), ("scan", "print rows")):
        described = table.add_parser(name, help=text)
        described.set_defaults(action=f"table {name}")
        described.add_argument("table", metavar="TABLE")
        if name == "scan":
            rows = _number("rows", ROWS_MAX)
            described.add_argument("--limit", type=rows, default=10_000, metavar="ROWS")
    _table_changes(table)

    tablet = modes.add_parser("tablet", help="manage tablets").add_subparsers(required=True)
    step_down = tablet.add_parser("leader_step_down", help="make the tablet's leader step down")
    step_down.set_defaults(action="tablet leader_step_down")
    step_down.add_argument("tablet", metavar="TABLET_ID")
    step_down.add_argument("--abrupt", action="store_true", help="do not choose a successor")
    step_down.add_argument("--new-leader-uuid", "--new_leader_uuid", metavar="UUID")
    changes = tablet.add_parser("change_config", help="change the replicas of a tablet")
    changes.set_defaults(action="tablet change_config")
    kinds = changes.add_subparsers(dest="change", required=True)
    for name in ("add_replica", "remove_replica", "change_replica_type"):
        kind = kinds.add_parser(name)
        kind.add_argument("tablet", metavar="TABLET_ID")
        kind.add_argument("ts_uuid", metavar="TS_UUID")
        if name != "remove_replica":
            kind.add_argument("replica_type", choices=["VOTER", "NON_VOTER"])
    _remote_replica(modes)
    _metastore(modes)
    return parser.parse_args(list(arguments))


def _remote_replica(modes: Any) -> None:
    replicas = modes.add_parser("remote_replica", help="change a replica directly on its server")
    unsafe = replicas.add_subparsers(required=True).add_parser(
        "unsafe_change_config",
        help="force a configuration of the given members on a replica whose tablet has lost its "
        "majority for good; data that only other members have are lost",
    )
    unsafe.set_defaults(action="remote_replica unsafe_change_config")
    unsafe.add_argument("server", metavar="NODE:PORT")
    unsafe.add_argument("tablet", metavar="TABLET_ID")
    unsafe.add_argument("peer_uuids", metavar="PEER_UUID", nargs="+")


def _metastore(modes: Any) -> None:
    actions = modes.add_parser("hms", help="check or repair metastore entries").add_subparsers(
        required=True
    )
    texts = {
        "check": "compare Kudu's tables with their entries",
        "precheck": "check that Hive allows the names of all tables",
        "downgrade": "convert entries to the format of unsynchronized catalogs",
    }
    for name, text in texts.items():
        actions.add_parser(name, help=text).set_defaults(action=f"hms {name}")
    _lists(actions.add_parser("list", help="list all entries of this cluster"), "hms list")
    fix = actions.add_parser("fix", help="correct entries that differ from Kudu's tables")
    fix.set_defaults(action="hms fix")
    fix.add_argument("--dryrun", action="store_true", help="only print the changes")
    for flag, usual in (
        ("create_missing_hms_tables", True),
        ("fix_inconsistent_tables", True),
        ("drop_orphan_hms_tables", False),
    ):
        fix.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, default=usual)


def _table_changes(table: Any) -> None:
    def add(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = table.add_parser(name, help=text)
        parser.set_defaults(action=f"table {name}")
        parser.add_argument("table", metavar="TABLE")
        return parser

    create = add("create", "create a table, and wait until its tablets run")
    create.add_argument(
        "--columns",
        type=_columns,
        default=COLUMNS,
        metavar="NAME:TYPE,...",
        help="the columns; the first is the key (default: %(default)s)",
    )
    create.add_argument(
        "--hash",
        "--partitions",
        type=_number("hash buckets", BUCKETS_MAX),
        default=2,
        metavar="N",
        help="number of tablets; keys are hashed to tablets (default: %(default)s)",
    )
    create.add_argument(
        "--replicas",
        type=_number("replicas", REPLICAS_MAX),
        default=-1,
        metavar="N",
        help="replicas of each tablet (default: the masters' default)",
    )
    add("delete", "delete a table with its rows")
    change = add("alter", "change a table").add_mutually_exclusive_group(required=True)
    change.add_argument("--rename", metavar="NEW", help="rename the table")
    change.add_argument("--add-column", type=_column, metavar="NAME:TYPE", help="add a column")
    change.add_argument("--drop-column", metavar="NAME", help="drop a column and its values")
    change.add_argument("--rename-column", type=_renamed, metavar="A=B", help="rename a column")


def _columns(text: str) -> list[tuple[str, str]]:
    return [_column(part) for part in text.split(",")]


def _column(text: str) -> tuple[str, str]:
    name, colon, column_type = text.rpartition(":")
    if not name or not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:TYPE, such as 'value:string'")
    if column_type.upper() not in COLUMN_TYPES:
        near = choices_near(column_type, [each.lower() for each in COLUMN_TYPES])
        raise argparse.ArgumentTypeError(f"{column_type!r} is not a type: {near}")
    return name, column_type.upper()


def _renamed(text: str) -> tuple[str, str]:
    name, _, new_name = text.partition("=")
    if not name or not new_name:
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return name, new_name


def _number(what: str, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what}, 1 to {most}")
        return int(text)

    return number


def _lists(parser: argparse.ArgumentParser, action: str) -> None:
    parser.set_defaults(action=action)
    parser.add_argument("--format", choices=LIST_FORMATS, default=LIST_FORMATS[0])
