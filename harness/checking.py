"""Judging a history: every checker of the workload, each told its time, merged by one rule.

A checker that crashes, runs out of budget or returns what is no result is `unknown` with the
reason, never `valid`, and costs no other checker its verdict.
"""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from harness.case import Case
from harness.certificate import certified, weighed
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, CheckerLimitError
from harness.imported import ModelChecker, model_of
from harness.interrupts import UserInterrupt, telling_interrupts
from harness.ops import CheckResult, History, Verdict, worst
from harness.overruled import temper
from harness.plugins import Checker, Workload
from harness.registry import load_plugin, plugin_names
from harness.signatures import sign
from harness.situation import explained

__all__ = [
    "CHECK_TIME_LIMIT_S",
    "EXIT_CODES",
    "RESULT_BYTES_MAX",
    "Judgement",
    "checked_result",
    "checker_name",
    "checker_names",
    "checkers_of",
    "judge",
    "load_checker",
    "result_of_check",
]

_log = logging.getLogger(__name__)

CHECK_TIME_LIMIT_S: Final = 120.0
RESULT_BYTES_MAX: Final = 64 * 1024 * 1024
"""How long one result may be as JSON; what a store keeps must be readable again."""
_TRACEBACK_LINES: Final = 20
_SHOWN_CHARACTERS_MAX: Final = 500
EXIT_CODES: Final = {
    Verdict.VALID: EXIT_VALID,
    Verdict.PERMITTED: EXIT_VALID,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
    Verdict.INVALID: EXIT_INVALID,
}


class Judgement(msgspec.Struct, frozen=True):
    """All results over one history, and the verdict they add up to."""

    results: tuple[CheckResult, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        return worst(result.verdict for result in self.results)

    @property
    def exit_code(self) -> int:
        """The exit code of the verdict."""
        return EXIT_CODES[self.verdict]


def checkers_of(case: Case) -> tuple[Checker, ...]:
    """The checkers that judge the case's runs; needs no target. Raises `UsageError`."""
    return tuple(map(load_checker, checker_names(case)))


def load_checker(name: str) -> Checker:
    """A checker, or the model of this name, which judges imported runs; raises `UsageError`."""
    if name in plugin_names("models") and name not in plugin_names("checkers"):
        return ModelChecker(load_plugin("models", name))
    checker: Checker = load_plugin("checkers", name)
    return checker


def checker_names(case: Case) -> tuple[str, ...]:
    """Those of its workload, and those that its target and the user put beside them."""
    if (model := model_of(case)) is not None:
        return (model,)
    workload: Workload = load_plugin("workloads", case.workload)
    return tuple(dict.fromkeys([*workload.checkers, *case.checkers]))


def judge(
    history: History,
    case: Case,
    checkers: Sequence[Checker],
    *,
    time_limit_s: float = CHECK_TIME_LIMIT_S,
) -> Judgement:
    """Run `checkers` over `history`, one after the other.

    Each is told to take `time_limit_s` at most. Nothing here ends one that does not look at the
    clock: that takes the user's Ctrl-C, or the alarms of the workers that judge a whole store.
    """

    def judged(checker: Checker, part: History) -> CheckResult:
        check = functools.partial(checker.check, part, case, time_limit_s=time_limit_s)
        return result_of_check(checker_name(checker), check)

    found = [
        temper(history, judged(checker, history), functools.partial(judged, checker))
        for checker in checkers
    ]
    try:
        return Judgement(explained(history, sign(certified(found), history)))
    except Exception as error:  # noqa: BLE001 - what is said about a verdict is not the verdict
        _log.warning("the verdicts cannot be explained or signed: %s", _shown(error))
        return Judgement(tuple(found))


def checker_name(checker: Checker) -> str:
    """What the checker calls itself, or its class where it has no name."""
    name = getattr(checker, "name", None)
    return name if isinstance(name, str) else type(checker).__name__


def result_of_check(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    """The result of `check()`; whatever it does instead of giving one, that is `unknown`.

    Raises only `UserInterrupt`, when the user presses Ctrl-C meanwhile.
    """
    try:
        with telling_interrupts():
            return checked_result(name, check())
    except UserInterrupt:
        raise
    except CheckerLimitError as error:
        return CheckResult(name, Verdict.UNKNOWN, f"hit a limit: {_shown(error, str)}")
    except BaseException as error:  # noqa: BLE001 - a crash of a checker becomes a recorded verdict
        return CheckResult(
            name,
            Verdict.UNKNOWN,
            f"the checker crashed: {_shown(error)}",
            explanation=tuple(map(_text, traceback.format_exc().splitlines()[-_TRACEBACK_LINES:])),
        )


def checked_result(name: str, result: object, *, whole: bool = True) -> CheckResult:
    """`result` as one that can be stored and shown, whatever the checker `name` returned.

    What is no `CheckResult`, cannot be written as JSON, or looked at too little of a `whole`
    history (one key of many may have nothing to look at) is `unknown`; but a conviction with a
    reason stays one, without what cannot be written.
    """
    if not isinstance(result, CheckResult):
        return CheckResult(
            name, Verdict.UNKNOWN, f"the checker returned {_shown(result)}, not a CheckResult"
        )
    why = _unstorable(result)
    if why is None:
        return weighed(result) if whole else result
    if result.verdict is not Verdict.INVALID:
        return CheckResult(name, Verdict.UNKNOWN, f"its result cannot be stored: {why}")
    return CheckResult(
        name, Verdict.INVALID, f"{_text(result.reason)} (the rest cannot be stored: {why})"
    )


def _unstorable(result: CheckResult) -> str | None:
    """Why a result cannot be kept in a store, if it cannot."""
    if not _is_well_formed(result):
        return "a field is not of its type"
    try:
        size = len(msgspec.json.encode(result))
    except Exception as error:  # noqa: BLE001 - anything may be in there
        return _shown(error)
    if size > RESULT_BYTES_MAX:
        return f"it takes {size} bytes; the limit is {RESULT_BYTES_MAX}"
    return None


def _is_well_formed(result: CheckResult) -> bool:
    """Whether each field is what it is declared to be, which a struct does not look after."""
    return (
        isinstance(result.verdict, Verdict)
        and all(isinstance(text, str) for text in (result.checker, result.reason))
        and all(isinstance(line, str) for line in result.explanation)
        and all(isinstance(index, int) for index in result.operations)
        and isinstance(result.details, dict)
    )


def _shown(value: object, tell: Callable[[object], str] = repr) -> str:
    """`value` in one bounded line, whatever the methods of a plug-in's own do."""
    try:
        with telling_interrupts():
            return _text(tell(value))
    except UserInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - as whatever else a checker raises
        return f"a {type(value).__name__}"


def _text(text: object) -> str:
    """`text` as JSON can hold it, cut where it is too long."""
    return str(text)[:_SHOWN_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
