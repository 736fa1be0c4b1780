"""`harness heal`: undoes faults of `harness break`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.up.text import healed_text
from harness.errors import UsageError
from harness.up.cluster import Healed
from harness.up.control_socket import Heal
from harness.up.lifecycle import question
from harness.up.records import find_place, is_fault_id


def main(arguments: Sequence[str]) -> int:
    """Heal one fault or all faults of a cluster, and print the effects that they had."""
    parser = Parser(
        prog="harness heal",
        description="Undo a fault that `harness break` injected, and show its effect.",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="[NAME] [ID]",
        help="a cluster, and the id of an active fault (default: the only cluster and fault)",
    )
    parser.add_argument(
        "--all",
        dest="everything",
        action="store_true",
        help="undo all faults, and start every node that is down",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parsed = parser.parse_args(list(arguments))
    names, ids = _names_and_ids(parsed.what)
    if len(ids) > 1 or len(names) > 1 or (ids and parsed.everything):
        raise UsageError(
            f"{' '.join(parsed.what)!r}: name one cluster at most, and one fault or --all"
        )
    place = find_place(names[0] if names else None)
    asked = Heal(id=ids[0] if ids else None, everything=parsed.everything)
    healed = msgspec.convert(question(place, asked), list[Healed])
    if parsed.json:
        say(msgspec.json.encode({"healed": healed}).decode())
    else:
        say("\n".join(healed_text(each) for each in healed) or "no fault was active")
    return 0


def _names_and_ids(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into names of clusters and ids of faults.

    The second of two arguments is always an id: the id of a planned fault can look like a name.
    """
    ids = [word for word in words if is_fault_id(word)]
    names = [word for word in words if not is_fault_id(word)]
    return (names[:1], names[1:]) if len(names) == 2 and not ids else (names, ids)
