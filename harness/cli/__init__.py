"""The command line: `harness VERB`. Heavy imports happen inside the verb that needs them.

Results go to stdout, progress and errors to stderr. Exit codes are Jepsen's: 0 valid, 1 invalid,
2 unknown, 254 usage, 255 crash (argparse alone would exit with 2 for a usage error, which here
means *unknown*). 141 means that the reader of a long output closed the pipe. Only a verb's return
value can lead to exit code 1: exceptions, even `SystemExit`, always lead to other exit codes.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from harness.cli.output import ensure_standard_streams, flush_output, note, reader_went_away
from harness.cli.parser import build_parser, known_verbs, verb_module
from harness.cli.project import project_arguments
from harness.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_CODE_MAX,
    EXIT_CRASH,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    HarnessError,
    UsageError,
    unknown_name,
)

__all__ = ["main"]

_OURS: Final = frozenset({"harness", "targets", "nemesis", "checkers", "workloads", "results"})
_ASKED_AND_ANSWERED: Final = frozenset({"-h", "--help", "--help-all", "--version"})
"""Flags after which argparse itself exits with code 0."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; never raises an exception."""
    ensure_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _checked(_dispatch(arguments))
    except UsageError as error:
        note(f"harness: {error}")
        return EXIT_USAGE
    except HarnessError as error:
        note(f"harness: {type(error).__name__}: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        note("harness: interrupted; `harness clean` removes leftovers")
        return EXIT_INTERRUPTED
    except SystemExit as error:
        if not error.code and not _ASKED_AND_ANSWERED.isdisjoint(arguments):
            return 0
        note(
            f"harness: something called sys.exit({error.code!r}) before there was a verdict:\n"
            + "".join(traceback.format_tb(error.__traceback__)[-3:])
        )
        return EXIT_CRASH
    except BaseException as error:  # noqa: BLE001 - every crash needs an exit code
        if isinstance(error, BrokenPipeError) and reader_went_away():
            # not a failure: the reader closed the pipe, as in `harness export RUN | head`
            return EXIT_BROKEN_PIPE
        if isinstance(error, (OSError, MemoryError)):  # an error of the machine, not of the harness
            note(f"harness: {type(error).__name__}: {error} ({_place(error)})")
            return EXIT_CRASH
        traceback.print_exc()
        note(f"harness: {_fault_of(error)}")
        return EXIT_CRASH
    finally:
        flush_output()


def _fault_of(error: BaseException) -> str:
    """Say whether a plug-in or the harness made the mistake, by the innermost frame of either."""
    from harness.support.distributions import packages_of, plugin_distributions

    packages = {
        package for distribution in plugin_distributions() for package in packages_of(distribution)
    }
    packages |= _OURS
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        package = str(frame.f_globals.get("__name__")).split(".", maxsplit=1)[0]
        if package in packages - _OURS:
            code = frame.f_code
            return (
                f"this is a mistake in the plug-in package {package!r}, in {code.co_qualname}() "
                f"({code.co_filename}, line {frame.f_lineno})"
            )
        if package in packages:
            break
    return "this is a bug in the harness; please report it"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    frames_of_ours = [
        frame for frame in frames if f"{os.sep}harness{os.sep}" in frame.filename
    ] or frames
    return f"at {os.path.basename(frames_of_ours[-1].filename)}:{frames_of_ours[-1].lineno}"  # noqa: PTH119


def _checked(code: object) -> int:
    """Return a verb's exit code, or `EXIT_CRASH` if a plug-in returned an invalid one (`None`)."""
    if isinstance(code, int) and 0 <= code <= EXIT_CODE_MAX:
        return code
    note(f"harness: the verb returned {code!r}; its exit code must be in 0 .. {EXIT_CODE_MAX}")
    return EXIT_CRASH


def _dispatch(arguments: list[str]) -> int:
    verb, *rest = arguments or [""]
    if verb in {"help", "--help", "-h"}:
        return _help(rest)
    if verb.startswith("-") or not verb:
        parser = build_parser()
        parser.parse_args(arguments)
        parser.print_help()
        return EXIT_USAGE
    if verb not in known_verbs():
        raise unknown_name("verb", verb, known_verbs(), see="harness --help")
    return verb_module(verb).main([*project_arguments(verb, rest), *rest])


def _help(arguments: list[str]) -> int:
    verbs = [each for each in arguments if not each.startswith("-")]
    if not verbs or verbs[0] == "help":
        build_parser().print_help()
        return 0
    if verbs[0] not in known_verbs():
        raise unknown_name("verb", verbs[0], known_verbs(), see="harness --help")
    try:
        return verb_module(verbs[0]).main([*verbs[1:], "--help"])
    except SystemExit as error:
        return int(error.code or 0)
