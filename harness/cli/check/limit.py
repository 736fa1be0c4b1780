"""The options `--check-time-limit`, `--max-steps` and `--memory`, which several verbs share.

The time limit is passed to each checker. `--max-steps` and `--memory` limit the search for a
linearization. This search may run in child processes, so both options set environment variables,
which `checkers.linearizability` reads. `harness report` has only the time limit, because it gives
each check a budget of its own.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from harness.cli.parser import Parser
from harness.errors import UsageError
from harness.exact import whole_number
from harness.verdict.limits import CHECK_TIME_LIMIT_S

FLAG: Final = "--check-time-limit"
MAX_STEPS_VARIABLE: Final = "HARNESS_CHECK_MAX_STEPS"
MEMORY_VARIABLE: Final = "HARNESS_CHECK_MEMORY_MIB"
SECONDS_MAX: Final = 1e9
"""The maximum time limit in seconds, about thirty years, so that arithmetic cannot overflow."""
WHOLE_MAX: Final = 10**15
_HELP: Final = (
    "time limit of each checker, in seconds; a checker has to watch the clock itself, so use "
    "Ctrl-C if one does not"
)


def add_check_limit(parser: Parser, text: str = _HELP, *, searches: bool = True) -> None:
    """Add `--check-time-limit`; with `searches`, also `--max-steps` and `--memory`."""
    parser.add_argument(
        FLAG,
        type=_seconds,
        default=CHECK_TIME_LIMIT_S,
        metavar="S",
        help=f"{text} (default: %(default)s)",
    )
    if searches:
        _add_search_limits(parser)


def _add_search_limits(parser: Parser) -> None:
    for flag, variable, metavar, what in (
        (
            "--max-steps",
            MAX_STEPS_VARIABLE,
            "N",
            (
                "maximum number of steps of a search for a linearization; makes its verdict the "
                "same on every machine (default: as many as the time allows)"
            ),
        ),
        (
            "--memory",
            MEMORY_VARIABLE,
            "MIB",
            "memory that a search for a linearization may use in addition (default: 2048)",
        ),
    ):
        parser.add_argument(
            flag,
            type=_whole(flag),
            action=_Exported,
            const=variable,
            metavar=metavar,
            help=what,
        )


class _Exported(argparse.Action):
    """An argparse action that stores the option's value in the environment variable `const`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del parser, option_string
        os.environ[str(self.const)] = str(values)
        setattr(namespace, self.dest, values)


def _whole(flag: str) -> Callable[[str], int]:
    def number_of(text: str) -> int:
        number = whole_number(text) or 0
        if not 0 < number <= WHOLE_MAX:
            raise UsageError(f"{flag} is {text}; it must be a whole number from 1 to {WHOLE_MAX}")
        return number

    return number_of


def _seconds(text: str) -> float:
    """Parse a time limit. Raises `ValueError` if `text` is not a number."""
    seconds = float(text)
    if not 0 < seconds <= SECONDS_MAX:  # also true for NaN
        raise UsageError(
            f"{FLAG} is {seconds}; it must be positive and at most {SECONDS_MAX:g} seconds"
        )
    return seconds
