"""The option `--check-time-limit`, which is one rule wherever a verb judges."""

from __future__ import annotations

from typing import Final

from harness.checking import CHECK_TIME_LIMIT_S
from harness.cli.parser import Parser
from harness.errors import UsageError

__all__ = ["add_check_limit"]

FLAG: Final = "--check-time-limit"
SECONDS_MAX: Final = 1e9
"""Some thirty years. What computes with a limit must neither overflow nor meet an infinity."""
_HELP: Final = (
    "each checker may take this long, in seconds; it is the checker that looks at the clock: "
    "Ctrl-C ends one that never does"
)


def add_check_limit(parser: Parser, text: str = _HELP) -> None:
    """Give `parser` the option; `text` is its help."""
    parser.add_argument(
        FLAG,
        type=_seconds,
        default=CHECK_TIME_LIMIT_S,
        metavar="S",
        help=f"{text} (default: %(default)s)",
    )


def _seconds(text: str) -> float:
    """The limit; a text that is no number is a `ValueError`, which argparse tells the user."""
    seconds = float(text)
    if not 0 < seconds <= SECONDS_MAX:  # NaN is not either
        raise UsageError(
            f"{FLAG} is {seconds}; it must be positive and at most {SECONDS_MAX:g} seconds"
        )
    return seconds
