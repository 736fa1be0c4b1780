"""The command `harness serve [STORE|LAKE]`, which serves pages to browsers until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.project import known_failures, project_store
from harness.errors import InfrastructureError, UsageError, counted
from harness.verdict.known import KnownFailures

if TYPE_CHECKING:
    from results.serve.library import Library

PORT: Final = 8080
_USAGE_ERRORS: Final = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM arrives, then return 0."""
    parser = Parser(
        prog="harness serve",
        description="Browse a store or a lake: its runs, any two runs or labels side by side, "
        "verdicts by nemesis and workload, trends. Prints the address; Ctrl-C stops the server.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "place", nargs="?", metavar="STORE",
        help="a folder of runs, or a lake: its folder, or s3://BUCKET/PREFIX (default: the store "
        "of harness.toml, or ./store)",
    )  # fmt: skip
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of this machine to listen on; everyone who can reach the address can read "
        "all runs (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N",
        help="port to listen on; 0 takes any free port (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help="file with known failures and their tickets, as [[known]] tables (default: "
        "harness.toml)",
    )
    parsed = parser.parse_args(list(arguments))
    parsed.place = parsed.place or project_store()
    if not 0 <= parsed.port <= 65_535:
        raise UsageError(f"--port is {parsed.port}; it must be in 0 .. 65535")
    return _serve(parsed.place, _address(parsed.bind), parsed.port, known_failures(parsed.known))


def _address(bind: str) -> str:
    import ipaddress

    if bind == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(bind))
    except ValueError as error:
        raise UsageError(
            f"--bind is {bind!r}; give an address of this machine, such as 127.0.0.1 or 0.0.0.0"
        ) from error


def _serve(place: str, bind: str, port: int, known: KnownFailures) -> int:
    from results.serve.groups import outcomes_of
    from results.serve.query import Where
    from results.serve.render import ensure_templates
    from results.serve.routes import Application
    from results.serve.server import StoreServer

    ensure_templates()
    with contextlib.closing(_library(place, known)) as library:
        with library.reading() as reading:
            runs = sum(outcomes_of(reading, Where("true", ())).values())
        try:
            server = StoreServer(bind, port, Application(library))
        except OSError as error:
            raise _refused(bind, port, error) from error
        before = signal.signal(signal.SIGTERM, _terminated)
        try:
            if not server.loopback:
                note(f"harness: everyone who can reach {bind} can read {place!r}")
            note(f"harness: {counted(runs, 'run')} in {place!r}; Ctrl-C ends")
            say(server.url)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            note("harness: stopped serving")
        finally:
            signal.signal(signal.SIGTERM, before)
            server.server_close()
    return 0


def _library(place: str, known: KnownFailures) -> Library:
    from results.lake.transfer.ingest_verb import Status
    from results.serve.library import Library

    status = Status()
    made = Library(place, progress=status, known=known)
    status.finish()
    return made


def _terminated(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _refused(bind: str, port: int, error: OSError) -> Exception:
    if error.errno == errno.EADDRINUSE:
        return UsageError(
            f"--port {port} is in use on {bind}; choose another, or 0 for any free one"
        )
    if error.errno in _USAGE_ERRORS:
        return UsageError(
            f"cannot listen on {bind} port {port}: {error.strerror}; choose another --bind or "
            "--port"
        )
    return InfrastructureError(f"cannot listen on {bind} port {port}: {error.strerror}")
