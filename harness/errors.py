"""The exceptions of the harness, one class per cause, and the exit code of each class.

Exit codes follow Jepsen (`jepsen/src/jepsen/cli.clj`): 0 valid (or only findings that the profile
permits), 1 invalid, 2 unknown, 254 usage, 255 crash. An error message shows the wrong value, the
rule that the value breaks and the fix.
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
    "StartError",
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
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE: the reader of the output stopped
EXIT_USAGE = 254
EXIT_CRASH = 255
EXIT_CODE_MAX = 255  # a process keeps the low eight bits of its exit code


class HarnessError(Exception):
    """The base of all exceptions that the harness raises on purpose."""

    exit_code = EXIT_CRASH


class UsageError(HarnessError):
    """The caller asked for something impossible: an option, case or plug-in that cannot work."""

    exit_code = EXIT_USAGE


class HistoryError(UsageError):
    """A history is incomplete, hostile or malformed. The message says where (file, line, op)."""


class InfrastructureError(HarnessError):
    """The target's surroundings failed: no Docker, no port, no disk. The run has no verdict.

    `output` has the last lines that the failed program printed, and `what` is the message without
    them.
    """

    def __init__(self, what: str = "", *, output: Sequence[str] = ()) -> None:
        super().__init__(_with_output(what, "its last output", output) if output else what)
        self.what, self.output = what, tuple(output)


class CleaningError(InfrastructureError):
    """Some leftovers of dead runs could not be removed.

    `failures` has the reasons, and `removed` has one line for each leftover that was removed.
    """

    def __init__(self, failures: Sequence[str], removed: Sequence[str]) -> None:
        super().__init__("; ".join(failures))
        self.failures = tuple(failures)
        self.removed = tuple(removed)


class TargetError(HarnessError):
    """The target did not start, or its plug-in broke its contract. The run has no verdict."""


class StartError(TargetError):
    """A node did not start as declared, or the target did not become ready.

    `node` and `part` (`image`, `command`, `setup` or `ready`) locate the error in a declaration.
    Without a node, the target as a whole was not ready. `log` has the last lines of the nodes'
    output, and `log_is` names them in the message.
    """

    def __init__(
        self,
        what: str,
        *,
        node: str = "",
        part: str = "ready",
        log: Sequence[str] = (),
        log_is: str = "",
    ) -> None:
        super().__init__(_with_output(what, log_is, log))
        self.what, self.node, self.part, self.log = what, node, part, tuple(log)


class CheckerLimitError(HarnessError):
    """A checker reached a limit (steps, memory, time), so the verdict is `unknown`."""

    exit_code = EXIT_UNKNOWN


class InternalError(HarnessError):
    """A defect of the harness itself. The message asks for a report with the run's folder."""


def _with_output(what: str, output_is: str, lines: Sequence[str]) -> str:
    title = f"; {output_is}:{'' if lines else ' nothing'}" if output_is else ""
    return "\n  ".join([what + title, *lines])


def located(source: object, line: int, column: int, what: str) -> HistoryError:
    """Return the error for the mistake `what` at this line and column of a file."""
    return HistoryError(f"{source}, line {line}, column {column}: {what}")


def listed(names: Sequence[str], *, limit: int) -> str:
    """Return the names as `m1, m2 and t3`; more than `limit` names as `m1, m2 and 4 more`."""
    first, more = names[:limit], len(names) - limit
    if more > 0:
        return f"{', '.join(first)} and {more} more"
    return " and ".join([", ".join(first[:-1]), first[-1]] if first[1:] else first)


def clipped(text: str, most: int) -> str:
    """Return `text`, shortened to `most` characters with three dots at the end if necessary."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object, characters_max: int = 80) -> str:
    """Return the `repr` of `value`, shortened; if `repr` raises, the name of its class."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the value may be of any type
        text = f"a {type(value).__name__}"
    return clipped(text, characters_max)


def described(error: BaseException, characters_max: int) -> str:
    """Return the error as `ValueError: message`; if `str(error)` raises, without the message."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a plug-in's `__str__` may raise anything
        text = ""
    return ": ".join([type(error).__name__, text] if text else [type(error).__name__])[
        :characters_max
    ]


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return `1 seed` or `2 seeds`: the noun agrees with the number."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def why_not_copied(error: BaseException) -> str:
    """Return why a folder could not be copied.

    For a `shutil.Error`, this is the reason for the first file.
    """
    return str(error.args[0][0][2] if isinstance(error, shutil.Error) else error)


def measured(count: int, units: str) -> str:
    """Return `1 process` or `3 packets`. `units` is a plural, such as the unit of a `Bite`."""
    return counted(count, units.removesuffix("es" if units.endswith("sses") else "s"), units)


NAMES_SHOWN_MAX: int = 90
"""The maximum length of the list of valid names in an error about an unknown name."""


def choices_near(given: str, known: Collection[str], *, see: str = "") -> str:
    """Return the end of an error message about an unknown name.

    It has the most similar known names, or else the first known names, and the command `see` that
    lists all.
    """
    names = list(known)
    if not names:
        return "there is none"
    lowered = {name.lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(given.lower(), lowered, n=2, cutoff=0.6)
    if len(near) > 1 and _likeness(given, near[0]) > _likeness(given, near[1]) + 0.1:
        near = near[:1]
    begun = [name for name in lowered if name.startswith(given.lower())][:2]
    if len(given) > 2 and begun and not any(name in begun for name in near):
        near = begun
    if near:
        text = f"did you mean {' or '.join(lowered[name] for name in near)}?"
    else:
        listing = ", ".join(names)
        if len(listing) > NAMES_SHOWN_MAX:
            listing = listing[:NAMES_SHOWN_MAX].rpartition(", ")[0] + ", ..."
        text = f"one of: {listing}"
    return f"{text} (`{see}` shows all {len(names)})" if see else text


def unknown_name(what: str, given: str, known: Collection[str], *, see: str = "") -> UsageError:
    """Return the error for an unknown name: `no nemesis 'x'; did you mean y?`."""
    return UsageError(f"no {what} {given!r}; {choices_near(given, known, see=see)}")


def _likeness(given: str, name: str) -> float:
    return difflib.SequenceMatcher(None, given.lower(), name).ratio()
