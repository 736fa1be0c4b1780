"""`harness export RUN`: writes a stored history as Jepsen EDN."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.cli.parser import Parser
from harness.errors import InfrastructureError
from harness.formats.edn.jepsen import write_edn
from harness.store import load_run
from harness.support.atomic_file import refuse_folder, replacing


def main(arguments: Sequence[str]) -> int:
    """Write a run's history to a file or to stdout."""
    parser = Parser(
        prog="harness export",
        description="Write a run's history as Jepsen EDN, one op per line.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="file to write (default: stdout)"
    )
    parsed = parser.parse_args(list(arguments))
    refuse_folder("--output", parsed.output)
    if parsed.output is None and sys.stdout is None:  # the parent process closed stdout
        raise InfrastructureError("cannot write to stdout: it is closed; name a file with --output")
    history = load_run(parsed.run).history
    try:
        if parsed.output is None:
            write_edn(history, sys.stdout)
            sys.stdout.flush()
        else:
            with replacing(parsed.output) as file:
                write_edn(history, file)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = parsed.output or "to stdout"
        raise InfrastructureError(f"cannot write {where}: {error.strerror}") from error
    return 0
