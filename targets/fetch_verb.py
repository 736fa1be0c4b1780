"""`harness fetch`: gets the programs of real targets into the cache of this user."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path  # determinism: no part of a node
from typing import Any, Final

KNOWN: Final[Mapping[str, str]] = {"hive": "targets.apache_hive.fetching"}
"""What can be fetched, and the module whose `fetch` does it."""


def main(arguments: Sequence[str]) -> int:
    """Fetch what is named, unless it is there, and print where it is."""
    from harness.cli.parser import Parser

    parser = Parser(
        prog="harness fetch",
        description="Get the programs of a real target from Maven Central, with hashes checked.",
    )
    parser.add_argument(
        "what", metavar="WHAT", choices=sorted(KNOWN), help="hive: Hive Metastore 4.0.1"
    )
    module: Any = importlib.import_module(KNOWN[parser.parse_args(list(arguments)).what])
    fetch: Callable[[Callable[[str], None]], Path] = module.fetch
    print(fetch(_note))  # noqa: T201 - what the verb is for
    return 0


def _note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
