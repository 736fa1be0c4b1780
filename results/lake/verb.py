"""The command `harness lake`, which maintains a lake, or exports its runs.

Endpoint and credentials of the store come from the environment (`AWS_ENDPOINT_URL`,
`AWS_ACCESS_KEY_ID`, ...).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.parser import Parser
from results.lake.upkeep import GRACE_HOURS

EPILOG: Final = """examples:
  harness lake compact s3://histories/lake
  harness lake vacuum lake --grace-hours 48
  harness lake check lake
  harness lake export s3://histories/lake --store again --label v2

exit codes of check: 0 sound, 1 damaged; of export: 0 all runs are written, 2 some could not be
written; 254 usage, 255 if the storage does not answer"""


def main(arguments: Sequence[str]) -> int:
    """Do one action on a lake, and print the outcome."""
    parsed = _parse(arguments)
    from results.lake.actions import act

    return act(parsed)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness lake",
        description="Maintain a lake, or export its runs, while other processes write and read it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    words = {
        "compact": "merge small files; every run stays in one file per table",
        "vacuum": "remove files of dead writers, and files that a compaction replaced",
        "check": "check that no file is missing, and that every run is complete and stored once",
    }
    for name, doc in words.items():
        action = actions.add_parser(name, help=doc, description=doc, allow_abbrev=False)
        action.add_argument("uri", metavar="URI", help="a folder, or s3://BUCKET/PREFIX")
        if name == "vacuum":
            action.add_argument(
                "--grace-hours",
                type=int,
                default=GRACE_HOURS,
                metavar="N",
                help="keep files younger than this; readers of older versions need them "
                "(default: %(default)s)",
            )
            action.add_argument(
                "--dry-run", action="store_true", help="only count the files to remove"
            )
    doc = "write runs of a lake as run folders of a store: all runs, or chosen runs"
    action = actions.add_parser("export", help=doc, description=doc, allow_abbrev=False)
    action.add_argument("uri", metavar="URI", help="a folder, or s3://BUCKET/PREFIX")
    action.add_argument(
        "--store", type=Path, required=True, metavar="DIR", help="folder of the store"
    )
    action.add_argument(
        "--run", action="append", default=[], metavar="KEY",
        help="export the run with this key (column `run`); repeatable",
    )  # fmt: skip
    action.add_argument(
        "--label", action="append", default=[], metavar="LABEL",
        help="export all runs of this label; repeatable",
    )  # fmt: skip
    return parser.parse_args(list(arguments))
