"""The command `python -m harness.determinism PATH...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import harness.determinism
from harness.determinism import lint_paths


def main(argv: Sequence[str] | None = None) -> int:
    """Lint the given paths. Returns 0 if they are clean, 1 for findings, 2 if unreadable."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.determinism", description=harness.determinism.__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    arguments = parser.parse_args(argv)
    try:
        findings = lint_paths(arguments.paths)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        sys.stderr.write(f"cannot lint: {error}\n")
        return 2
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
