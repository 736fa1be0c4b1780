"""`harness status`: shows one running cluster in detail, or lists all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.up.text import overview_text, status_text
from harness.up.cluster import StatusReport
from harness.up.control_socket import Status
from harness.up.lifecycle import question
from harness.up.records import find_place, places


def main(arguments: Sequence[str]) -> int:
    """Show one cluster in detail. Without a name, list several clusters in one line each."""
    parser = Parser(
        prog="harness status",
        description="Show the nodes of a cluster that `harness up` started, who leads, and which "
        "faults are active. Without NAME, several clusters are only listed.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="cluster (default: the only one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parsed = parser.parse_args(list(arguments))
    clusters = list(places())
    if parsed.name is None and len(clusters) != 1:
        rows = [(place.name, place.life(), place.standing()) for place in clusters]
        if parsed.json:
            listed = [{"name": n, "life": life.value, "cluster": each} for n, life, each in rows]
            say(msgspec.json.encode({"clusters": listed}).decode())
        else:
            say("\n".join(overview_text(rows)))
        return 0
    place = find_place(parsed.name)
    report = msgspec.convert(question(place, Status()), StatusReport)
    standing = place.standing()
    if parsed.json:
        say(msgspec.json.encode({"cluster": standing, "status": report}).decode())
    elif standing is not None:
        say(*status_text(standing, report))
    return 0
