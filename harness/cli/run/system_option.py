"""The option `--system FILE`, which names a file that declares the system under test.

The target `declared` reads the file, and the case keeps its content as an option of the target, so
a replay does not need the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.cli.project import SYSTEM
from harness.errors import UsageError
from harness.plugins import Target
from harness.registry import load_plugin

DECLARED: Final = "declared"
"""The name of the target for every system that a file declares."""


def add_system(group: Any) -> None:
    """Add the option `--system` to a group of a parser."""
    group.add_argument(
        SYSTEM,
        metavar="FILE",
        type=Path,
        help="the TOML file that declares the system under test, instead of --target; the case "
        "keeps its content (default: harness.toml, if it declares one)",
    )


def system_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the target that `--system` sets; empty without `--system`."""
    if parsed.system is None:
        return {}
    if parsed.target not in {None, DECLARED}:
        raise UsageError(
            f"--system {str(parsed.system)!r} declares the system, and --target names "
            f"{parsed.target!r}; drop one of the two"
        )
    reader: Target = load_plugin("targets", DECLARED)
    return reader.read_file(parsed.system)


def keep_system(parsed: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Set the target's options from the declaration, unless the command line sets them."""
    for name, value in given.items() if parsed.system is not None else ():
        # a flag on the command line wins over the file
        if getattr(parsed, f"target:{name}", None) is None:
            setattr(parsed, f"target:{name}", value)
