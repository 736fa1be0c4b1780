"""`harness break`: injects one fault, by hand, into a running cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.up.text import broken_text
from harness.errors import UsageError
from harness.nodes.degradation import seconds_in
from harness.up.cluster import Broken
from harness.up.control_socket import Break
from harness.up.lifecycle import question
from harness.up.records import find_place

EPILOG = """examples:
  harness break 'kill leader' --for 30s
  harness break dev 'cut node:m1 from others'
  harness break 'shape client from members delay=200ms jitter=50ms' --for 1m
  harness break partition-halves
  harness break 'do step-down on leader'

docs/faults.md describes faults in words, `harness list nemeses` the nemeses, and `harness list
faults` what works where"""


def main(arguments: Sequence[str]) -> int:
    """Inject the fault; print its targets, and the command that heals it."""
    parser = Parser(
        prog="harness break",
        description="Inject one fault into a cluster that `harness up` started.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="[NAME] FAULT",
        help="the cluster if there are several, and a fault in words or a nemesis",
    )
    parser.add_argument(
        "--for",
        dest="for_s",
        metavar="TIME",
        help="undo it after this time, such as 30s (default: at `harness heal`)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parsed = parser.parse_args(list(arguments))
    if len(parsed.what) > 2:
        raise UsageError(
            f"{' '.join(parsed.what)!r} is {len(parsed.what)} arguments; write the fault as one, "
            "in quotes: harness break 'kill leader'"
        )
    name = parsed.what[0] if len(parsed.what) == 2 else None
    for_s = None if parsed.for_s is None else seconds_in(parsed.for_s)
    if parsed.for_s is not None and for_s is None:
        raise UsageError(
            f"--for is {parsed.for_s!r}; write a number and ms, s or m, such as 30s or 2m"
        )
    place = find_place(name)
    answer = question(place, Break(fault=" ".join(parsed.what[-1].split()), for_s=for_s))
    broken = msgspec.convert(answer, Broken)
    if parsed.json:
        say(msgspec.json.encode(broken).decode())
    else:
        say("\n".join(broken_text(place.name, broken)))
    return 0
