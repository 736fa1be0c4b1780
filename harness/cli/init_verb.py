"""`harness init`: write a commented `harness.toml` into the current folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.project import FILE
from harness.errors import InfrastructureError, UsageError

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
    """Write `harness.toml`; raises `UsageError` if it exists and `--force` is not given."""
    parser = Parser(
        prog="harness init",
        description=f"Write a commented {FILE} into the current folder: the defaults of `run`, "
        "`soak` and the other verbs.",
    )
    parser.add_argument("--force", action="store_true", help=f"replace an existing {FILE}")
    parsed = parser.parse_args(list(arguments))
    path = Path(FILE)
    try:
        with path.open("w" if parsed.force else "x", encoding="utf-8") as file:
            file.write(_TEXT)
    except FileExistsError:
        raise UsageError(f"{FILE} exists already; edit it, or give --force to replace it") from None
    except OSError as error:
        raise InfrastructureError(f"{FILE} cannot be written: {error.strerror}") from error
    say(f"wrote {FILE}: edit it, then `harness run`")
    return 0
