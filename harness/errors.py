"""One small tree of exceptions, by cause, and the exit codes they map to.

Exit codes follow Jepsen (`jepsen/src/jepsen/cli.clj`): 0 valid (or nothing but what the profile
permits), 1 invalid, 2 unknown, 254 usage, 255 crash. A message shows the value, the rule it broke
and the repair.
"""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Collection, Sequence

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_CODE_MAX",
    "EXIT_CRASH",
    "EXIT_INTERRUPTED",
    "EXIT_INVALID",
    "EXIT_UNKNOWN",
    "EXIT_USAGE",
    "EXIT_VALID",
    "CheckerLimitError",
    "CleaningError",
    "HarnessError",
    "HistoryError",
    "InfrastructureError",
    "InternalError",
    "TargetError",
    "UsageError",
    "choices_near",
    "clipped",
    "counted",
    "described",
    "listed",
    "located",
    "measured",
    "shown",
    "unknown_name",
    "why_not_copied",
]

EXIT_VALID = 0
EXIT_INVALID = 1
EXIT_UNKNOWN = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE: the reader of our output stopped
EXIT_USAGE = 254
EXIT_CRASH = 255
EXIT_CODE_MAX = 255  # a process keeps the low eight bits of its exit code


class HarnessError(Exception):
    """The root of everything the harness raises on purpose."""

    exit_code = EXIT_CRASH


class UsageError(HarnessError):
    """The caller asked for something that cannot be: a bad flag, case, plug-in or combination."""

    exit_code = EXIT_USAGE


class HistoryError(UsageError):
    """A stored or imported history is torn, hostile or malformed; says where (file, line, op)."""


class InfrastructureError(HarnessError):
    """The world around the target failed: no Docker, no port, no disk. Never a verdict."""


class CleaningError(InfrastructureError):
    """Part of what dead runs left resists; `removed` has a line for each part that does not."""

    def __init__(self, failures: Sequence[str], removed: Sequence[str]) -> None:
        super().__init__("; ".join(failures))
        self.failures = tuple(failures)
        self.removed = tuple(removed)


class TargetError(HarnessError):
    """The target did not come up, or broke the contract of its plug-in. Never a verdict."""


class CheckerLimitError(HarnessError):
    """A checker hit one of its bounds (steps, memory, time); becomes the verdict `unknown`."""

    exit_code = EXIT_UNKNOWN


class InternalError(HarnessError):
    """Our own mistake. Please report it with the run's folder."""


def located(source: object, line: int, column: int, what: str) -> HistoryError:
    """The error that says where in which file `what` is wrong."""
    return HistoryError(f"{source}, line {line}, column {column}: {what}")


def listed(names: Sequence[str], *, limit: int) -> str:
    """`m1, m2 and t3`; of more than `limit` the first ones, `and 4 more`."""
    first, more = names[:limit], len(names) - limit
    if more > 0:
        return f"{', '.join(first)} and {more} more"
    return " and ".join([", ".join(first[:-1]), first[-1]] if first[1:] else first)


def clipped(text: str, most: int) -> str:
    """The text, or where it has more than `most` characters its beginning, with three dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object, characters_max: int = 80) -> str:
    """`value` as Python writes it, short enough for a line; its class if that raises.

    A plug-in's own `__repr__` may raise, too.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - anything may be in there
        text = f"a {type(value).__name__}"
    return clipped(text, characters_max)


def described(error: BaseException, characters_max: int) -> str:
    """`ValueError: its text`, short enough for a line, even where the error cannot be written."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a plug-in's own `__str__`
        text = ""
    return ": ".join([type(error).__name__, text] if text else [type(error).__name__])[
        :characters_max
    ]


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 seed`, `2 seeds`: for messages, so that their numbers agree."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def why_not_copied(error: BaseException) -> str:
    """The reason why a folder could not be copied: `shutil` raises a list with pairs of files."""
    return str(error.args[0][0][2] if isinstance(error, shutil.Error) else error)


def measured(count: int, units: str) -> str:
    """`1 process`, `3 packets`: the same for a unit in the plural, as that of a `Bite`."""
    return counted(count, units.removesuffix("es" if units.endswith("sses") else "s"), units)


NAMES_SHOWN_MAX: int = 90
"""The limit of characters of names in a message, if no name is close."""


def choices_near(given: str, known: Collection[str], *, see: str = "") -> str:
    """The repair of a name that does not exist: the names close to it, else the first few.

    `see` is a command that shows all of them.
    """
    names = list(known)
    if not names:
        return "there is none"
    lowered = {name.lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(given.lower(), lowered, n=2, cutoff=0.6)
    if len(near) > 1 and _likeness(given, near[0]) > _likeness(given, near[1]) + 0.1:
        near = near[:1]
    if not near and len(given) > 2:
        near = [name for name in lowered if name.startswith(given.lower())][:2]
    if near:
        text = f"did you mean {' or '.join(lowered[name] for name in near)}?"
    else:
        listing = ", ".join(names)
        if len(listing) > NAMES_SHOWN_MAX:
            listing = listing[:NAMES_SHOWN_MAX].rpartition(", ")[0] + ", ..."
        text = f"one of: {listing}"
    return f"{text} (`{see}` shows all {len(names)})" if see else text


def unknown_name(what: str, given: str, known: Collection[str], *, see: str = "") -> UsageError:
    """The error for a name that does not exist: `no nemesis 'x'; did you mean y?`."""
    return UsageError(f"no {what} {given!r}; {choices_near(given, known, see=see)}")


def _likeness(given: str, name: str) -> float:
    return difflib.SequenceMatcher(None, given.lower(), name).ratio()
