"""`harness down`: stops a cluster of `harness up`, and removes everything it created."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.up.lifecycle import take_down
from harness.up.records import find_place


def main(arguments: Sequence[str]) -> int:
    """Stop the cluster, even if the background process that manages it has died."""
    parser = Parser(
        prog="harness down",
        description="End a cluster that `harness up` started, and remove its processes or "
        "containers, networks, volumes, rules, mounts, ports, data and logs.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="cluster (default: the only one)")
    parser.add_argument(
        "--keep-data",
        action="store_true",
        help="stop the nodes in order, and keep a copy of their data and their logs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parsed = parser.parse_args(list(arguments))
    place = find_place(parsed.name)
    lines = take_down(place, keep_data=parsed.keep_data, progress=note)
    if parsed.json:
        say(msgspec.json.encode({"name": place.name, "removed": True, "notes": lines}).decode())
    else:
        say("\n".join([*lines, f"{place.name} is down"]))
    return 0
