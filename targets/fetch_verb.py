"""`harness fetch`: downloads the programs of real targets into the user's cache."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.errors import UsageError

KNOWN: Final[Mapping[str, str]] = {
    "hive": "targets.apache_hive.fetching",
    "kudu": "targets.apache_kudu.fetching",
    "kudu-client": "targets.apache_kudu.javaclient.fetching",
}
"""The programs that can be fetched, with the modules that do it (`fetch`, `VERSIONS`)."""


def main(arguments: Sequence[str]) -> int:
    """Fetch the named program if it is not in the cache yet, and print its folder."""
    from harness.cli.parser import Parser

    parser = Parser(
        prog="harness fetch",
        description="Download the programs of a real target from Maven Central, and check their "
        "hashes.",
    )
    parser.add_argument(
        "what",
        metavar="WHAT",
        choices=sorted(KNOWN),
        help="hive: Hive Metastore; kudu: Kudu; kudu-client: Kudu's Java client",
    )
    parser.add_argument(
        "version", metavar="VERSION", nargs="?", help="the version, by default the newest one"
    )
    asked = parser.parse_args(list(arguments))
    module: Any = importlib.import_module(KNOWN[asked.what])
    version = asked.version or module.VERSIONS[0]
    if version not in module.VERSIONS:
        raise UsageError(
            f"the version {version!r} of {asked.what} is unknown; it must be one of "
            f"{', '.join(module.VERSIONS)}"
        )
    print(module.fetch(_note, version))  # noqa: T201 - the verb's output
    return 0


def _note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
