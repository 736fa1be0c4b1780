"""`harness fetch`: download the programs of real targets into the user's cache."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path  # determinism: no node runs this module
from typing import Any, Final

KNOWN: Final[Mapping[str, str]] = {"hive": "targets.apache_hive.fetching"}
"""Map each program that can be fetched to the module whose `fetch` downloads it."""


def main(arguments: Sequence[str]) -> int:
    """Fetch the named program if it is not in the cache yet, and print its folder."""
    from harness.cli.parser import Parser

    parser = Parser(
        prog="harness fetch",
        description="Download the programs of a real target from Maven Central, and check their "
        "hashes.",
    )
    parser.add_argument(
        "what", metavar="WHAT", choices=sorted(KNOWN), help="hive: Hive Metastore 4.0.1"
    )
    module: Any = importlib.import_module(KNOWN[parser.parse_args(list(arguments)).what])
    fetch: Callable[[Callable[[str], None]], Path] = module.fetch
    print(fetch(_note))  # noqa: T201 - the verb's output
    return 0


def _note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
