"""The arguments of `harness kudu`, spelt as in Kudu's own tool."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from harness.errors import UsageError, choices_near

KSCK_FORMATS: Final = ("plain_concise", "plain_full", "json_pretty", "json_compact")
LIST_FORMATS: Final = ("pretty", "json")
ROWS_MAX: Final = 1_000_000


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as `UsageError`, and accepts no abbreviated options."""

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
        description="Look at a cluster of the bundled Kudu, and administer it, with the words of "
        "Kudu's own tool.",
    )
    parser.add_argument(
        "--cluster", metavar="NAME", help="which `harness up` started (default: the only one)"
    )
    modes = parser.add_subparsers(metavar="MODE", required=True)

    ksck = modes.add_parser("ksck", help="check the whole cluster")
    ksck.set_defaults(action="ksck")
    ksck.add_argument("--format", "--ksck_format", choices=KSCK_FORMATS, default=KSCK_FORMATS[0])
    ksck.add_argument("--checksum", action="store_true", help="compare the rows of all replicas")

    master = modes.add_parser("master", help="masters").add_subparsers(required=True)
    _lists(master.add_parser("list", help="all masters, each asked"), "master list")
    for name, text in (("add", "make a running master a member"), ("remove", "the opposite")):
        changed = master.add_parser(name, help=text)
        changed.set_defaults(action=f"master {name}")
        changed.add_argument("address", metavar="NODE:PORT")
        if name == "remove":
            changed.add_argument(
                "--uuid", "--master_uuid", metavar="UUID", help="where several have the address"
            )
    tserver = modes.add_parser("tserver", help="tablet servers").add_subparsers(required=True)
    _lists(tserver.add_parser("list", help="all that the leader knows"), "tserver list")

    table = modes.add_parser("table", help="tables").add_subparsers(required=True)
    listing = table.add_parser("list", help="all tables")
    _lists(listing, "table list")
    listing.add_argument(
        "--tablets", "--list_tablets", action="store_true", help="with tablets and replicas"
    )
    for name, text in (("describe", "columns, partitions, owner"), ("scan", "print rows")):
        described = table.add_parser(name, help=text)
        described.set_defaults(action=f"table {name}")
        described.add_argument("table", metavar="TABLE")
        if name == "scan":
            described.add_argument("--limit", type=_row_count, default=10_000, metavar="ROWS")

    tablet = modes.add_parser("tablet", help="tablets").add_subparsers(required=True)
    step_down = tablet.add_parser("leader_step_down", help="have the leader give up its role")
    step_down.set_defaults(action="tablet leader_step_down")
    step_down.add_argument("tablet", metavar="TABLET_ID")
    step_down.add_argument("--abrupt", action="store_true", help="without a successor")
    step_down.add_argument("--new-leader-uuid", "--new_leader_uuid", metavar="UUID")
    changes = tablet.add_parser("change_config", help="change who replicates a tablet")
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
    replicas = modes.add_parser("remote_replica", help="replicas, on their own server")
    unsafe = replicas.add_subparsers(required=True).add_parser(
        "unsafe_change_config",
        help="force a configuration of some of its members upon a replica whose tablet has lost "
        "its majority for good; what the others alone have is lost",
    )
    unsafe.set_defaults(action="remote_replica unsafe_change_config")
    unsafe.add_argument("server", metavar="NODE:PORT")
    unsafe.add_argument("tablet", metavar="TABLET_ID")
    unsafe.add_argument("peer_uuids", metavar="PEER_UUID", nargs="+")


def _metastore(modes: Any) -> None:
    """Add `hms ...`, for deployments with metastores."""
    actions = modes.add_parser("hms", help="entries in the metastore").add_subparsers(required=True)
    texts = {
        "check": "compare Kudu's tables with their entries",
        "precheck": "whether all names can be those of Hive's",
        "downgrade": "leave the entries of before the synchronization",
    }
    for name, text in texts.items():
        actions.add_parser(name, help=text).set_defaults(action=f"hms {name}")
    _lists(actions.add_parser("list", help="all entries of this cluster"), "hms list")
    fix = actions.add_parser("fix", help="write what Kudu says over entries that differ")
    fix.set_defaults(action="hms fix")
    fix.add_argument("--dryrun", action="store_true", help="say what would be done")
    for flag, usual in (
        ("create_missing_hms_tables", True),
        ("fix_inconsistent_tables", True),
        ("drop_orphan_hms_tables", False),
    ):
        fix.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, default=usual)


def _row_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= ROWS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows, 1 to {ROWS_MAX}")
    return int(text)


def _lists(parser: argparse.ArgumentParser, action: str) -> None:
    parser.set_defaults(action=action)
    parser.add_argument("--format", choices=LIST_FORMATS, default=LIST_FORMATS[0])
