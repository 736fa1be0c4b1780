"""`harness init`: writes a commented `harness.toml` into the current folder.

With `--compose FILE`, `harness.toml` declares the system in the Compose file, and a CI workflow is
written as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.init_compose import WORKFLOW, draft_from, write_files
from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.project import FILE
from harness.errors import UsageError

_TEXT: Final = """\
# Defaults of the harness for commands that are run in this folder.
# An option on the command line replaces a line of this file; --case FILE ignores the whole file.
# `harness list` shows what is installed.

# The system under test, and what its clients do.
target = "kudu"
workload = "ddl"
# profile = "strict"

# Faults. `harness list nemeses` describes each nemesis.
nemeses = ["partition-leader"]

# The environment: "sim", "process", "docker" or "auto" (Docker if it works here, else processes).
env = "sim"

# Seconds, operations per second and number of clients.
time-limit = 60
# rate = 40
# concurrency = 10

# The folder of runs, and the name that distinguishes soaks in reports.
store = "store"
# label = "v1"

# Worker processes of a soak (default: one per core).
# jobs = 2

# Failures that have a ticket: soaks, reports and `harness serve` mark them as known. With
# fails = false they do not change exit codes. `signature` may be the first parts of a signature.
# [[known]]
# signature = "linearizable-catalog · stale-read"
# ticket = "KUDU-1234"
# note = "leaders have no lease"
# fails = false
"""


def main(arguments: Sequence[str]) -> int:
    """Write the files; raise `UsageError` if one exists, unless `--force` is given."""
    parser = Parser(
        prog="harness init",
        description=f"Write a commented {FILE} into the current folder: the defaults of `run`, "
        "`soak` and the other verbs. With --compose, it declares the system of a Compose file, and "
        f"{WORKFLOW} runs it in CI.",
    )
    parser.add_argument(
        "--compose", metavar="FILE", type=Path, help="declare the system of this Compose file"
    )
    parser.add_argument(
        "--without",
        metavar="SERVICE,..",
        type=lambda text: tuple(text.split(",")),
        default=(),
        help="services of the Compose file that are not part of the system",
    )
    parser.add_argument(
        "--yes", action="store_true", help="ask nothing: assume the defaults, and list them"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    parsed = parser.parse_args(list(arguments))
    if parsed.compose is None:
        if parsed.without or parsed.yes:
            raise UsageError("--without and --yes belong to --compose FILE; add it, or drop them")
        write_files({FILE: _TEXT}, force=parsed.force)
        say(f"wrote {FILE}: edit it, then `harness run`")
        return 0
    draft_from(parsed.compose, parsed.without, ask_nothing=parsed.yes, force=parsed.force)
    return 0
