"""`harness clean`: removes leftovers of dead runs, in every environment."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.errors import EXIT_CRASH, CleaningError, HarnessError
from harness.plugins import Environment
from harness.registry import load_plugin, plugin_names
from harness.up.lifecycle import clean_places


def main(arguments: Sequence[str]) -> int:
    """Remove the leftovers of runs whose harness process has died, and print them."""
    parser = Parser(
        prog="harness clean",
        description="Remove processes, containers, networks and rules of runs whose harness is "
        "dead. Active runs and running clusters (`harness up`) are left alone.",
    )
    parser.parse_args(list(arguments))
    removed: list[str] = []
    failed = False
    for name in plugin_names("environments"):
        try:
            environment: Environment = load_plugin("environments", name)
            removed += [f"{name}: {line}" for line in environment.clean()]
        except HarnessError as error:
            if isinstance(error, CleaningError):
                removed += [f"{name}: {line}" for line in error.removed]
            failed = True
            note(f"harness: cannot clean {name}: {error}")
    folders, standing = clean_places()
    removed += folders
    say("\n".join([*(removed or ["nothing was left behind"]), *standing]))
    return EXIT_CRASH if failed else 0
