"""Judging a history: `judge_one` runs one checker within limits, `judge` all of them.

Runs, soaks, `harness check`, tests and the workers of reports all use both functions. The result of
a checker that crashes, reaches a limit or returns no result is `unknown` with the reason, never
`valid`. Other checkers keep their verdicts.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import (
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    CheckerLimitError,
    UsageError,
    counted,
)
from harness.ops import CheckResult, History, Verdict, worst
from harness.plugins import Checker, HistoryModel, Workload
from harness.registry import load_all, load_plugin
from harness.support.interrupts import PLUGIN_FAILURES, UserInterrupt, telling_interrupts
from harness.verdict.coverage import certified, weighed
from harness.verdict.explain import explained
from harness.verdict.limits import CHECK_TIME_LIMIT_S, Limits, SpentError, cpu_limit
from harness.verdict.signature import sign
from harness.verdict.unsafe_change import temper

_log = logging.getLogger(__name__)

_LIMITED: Final = "limited"
_CRASHED: Final = "crashed"
RESULT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The maximum size of a result as JSON: a store must be able to read it again."""
_TRACEBACK_LINES: Final = 20
_SHOWN_CHARACTERS_MAX: Final = 500
EXIT_CODES: Final = {
    Verdict.VALID: EXIT_VALID,
    Verdict.PERMITTED: EXIT_VALID,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
    Verdict.INVALID: EXIT_INVALID,
}


class Judgement(msgspec.Struct, frozen=True):
    """All results for one history, and their combined verdict."""

    results: tuple[CheckResult, ...]

    @property
    def verdict(self) -> Verdict:
        return worst(result.verdict for result in self.results)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def checkers_of(case: Case) -> tuple[Checker, ...]:
    """Load the checkers that judge runs of `case`, without loading its target.

    Raises `UsageError` if a checker does not load.
    """
    return tuple(map(load_checker, checker_names(case)))


def load_checker(name: str) -> Checker:
    """Load the checker with this name. Raises `UsageError` if that is impossible."""
    checker: Checker = load_plugin("checkers", name)
    return checker


def load_model(name: str) -> HistoryModel:
    """Load the checker with this name. It must support imported histories.

    Raises `UsageError` if the checker does not support them, or does not load.
    """
    checker = load_checker(name)
    if not isinstance(checker, HistoryModel):
        raise UsageError(f"the checker {name!r} judges runs only, and no imported histories")
    return checker


def model_names(kind: str) -> list[str]:
    """Return the names of the checkers of imported histories with this `HistoryModel.kind`.

    The kind is also the option of `harness check` that selects one of these checkers.
    """
    return [
        name
        for name, plugin in load_all("checkers")
        if isinstance(plugin, HistoryModel) and plugin.kind == kind
    ]


def checker_names(case: Case) -> tuple[str, ...]:
    """Return the names of a case's checkers.

    The workload's checkers come first, and then the ones that the target and the user added.
    """
    if case.model is not None:
        return (case.model,)
    workload: Workload = load_plugin("workloads", case.workload)
    return tuple(dict.fromkeys([*workload.checkers, *case.checkers]))


def judge(
    history: History,
    case: Case,
    checkers: Sequence[Checker],
    *,
    time_limit_s: float = CHECK_TIME_LIMIT_S,
) -> Judgement:
    """Judge `history` with `checkers`, one after the other, and add up their coverage.

    Each checker has `time_limit_s`. Only Ctrl-C ends a checker that ignores its time limit.
    """
    limits = Limits(cpu_s=time_limit_s)
    return Judgement(tuple(certified(judge_one(each, history, case, limits) for each in checkers)))


def judge_one(
    checker: Checker, history: History, case: Case, limits: Limits, *, whole: bool = True
) -> CheckResult:
    """Judge `history` with one checker within limits; add a signature and an explanation.

    Events that the target is not responsible for (`temper`) may change an invalid result to
    `unknown`. `whole` is false for a part of a history (one key, or its first part), in which there
    may be nothing to judge. Raises only `UserInterrupt`.
    """
    name = checker.name

    def check(part: History) -> CheckResult:
        try:
            return bounded(checker, limits).check(part, case, time_limit_s=limits.cpu_s)
        except MemoryError:
            if limits.memory_mib is None:
                raise
            raise CheckerLimitError(
                f"more than {limits.memory_mib} MiB of memory for "
                f"{counted(len(part.pairs), 'operation')}"
            ) from None

    def judged(part: History) -> CheckResult:
        return result_of_check(name, lambda: check(part), whole=whole)

    try:
        with cpu_limit(limits.cpu_s) if limits.alarm else contextlib.nullcontext():
            result = temper(history, judged(history), judged)
    except UserInterrupt:
        raise
    except SpentError:
        count = counted(len(history.pairs), "operation")
        spent = f"stopped after {limits.cpu_s:g} s of CPU, with {count} to judge"
        result = _limited(name, spent)
    except PLUGIN_FAILURES as error:
        result = _crashed(name, error)
    try:
        return explained(history, sign([result], history))[0]
    except Exception as error:  # noqa: BLE001 - a verdict needs no explanation
        _log.warning("the verdict of %s cannot be explained or signed: %s", name, _shown(error))
        return result


def bounded(checker: Checker, limits: Limits) -> Checker:
    """Return the checker, bounded by the limits of steps and configurations if both are set."""
    if limits.steps is None or limits.configurations is None:
        return checker
    return checker.bounded(steps=limits.steps, configurations=limits.configurations)


def result_of_check(
    name: str, check: Callable[[], CheckResult], *, whole: bool = True
) -> CheckResult:
    """Return the result of `check()`. An exception or a value of another type becomes `unknown`.

    Raises only `UserInterrupt`, when the user presses Ctrl-C during the check, and `SpentError`, at
    the alarm of `cpu_limit`.
    """
    try:
        with telling_interrupts():
            return checked_result(name, check(), whole=whole)
    except (UserInterrupt, SpentError):
        raise
    except CheckerLimitError as error:
        return _limited(name, _shown(error, str))
    except MemoryError:
        return _limited(name, "there was not enough memory")
    except BaseException as error:  # noqa: BLE001 - a crash of a checker becomes a recorded verdict
        return _crashed(name, error)


def _limited(name: str, text: str) -> CheckResult:
    return CheckResult(name, Verdict.UNKNOWN, f"hit a limit: {text}", details={_LIMITED: True})


def _crashed(name: str, error: BaseException) -> CheckResult:
    """Return the result of a checker that raised `error`. Call this while handling `error`."""
    return CheckResult(
        name,
        Verdict.UNKNOWN,
        f"the checker crashed: {_shown(error)}",
        explanation=tuple(map(_text, traceback.format_exc().splitlines()[-_TRACEBACK_LINES:])),
        details={_CRASHED: True},
    )


def was_limited(result: CheckResult) -> bool:
    """Whether a result is `unknown` because of a limit, so that a larger limit may decide it."""
    return result.verdict is Verdict.UNKNOWN and bool(result.details.get(_LIMITED))


def traceback_of(result: CheckResult) -> str | None:
    """Return the traceback in a crashed checker's result; `None` for other results."""
    return "\n".join(result.explanation) if result.details.get(_CRASHED) else None


def checked_result(name: str, result: object, *, whole: bool = True) -> CheckResult:
    """Make a storable result from the value that the checker `name` returned.

    A value becomes `unknown` if it is not a `CheckResult`, cannot be written as JSON, or judged too
    little of a `whole` history (one key of many may have nothing to judge). An invalid result with
    a reason stays invalid, without the parts that cannot be written.
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
    """Return why a store cannot keep `result`, or `None`."""
    if not _is_well_formed(result):
        return "a field is not of its type"
    try:
        size = len(msgspec.json.encode(result))
    except Exception as error:  # noqa: BLE001 - details may have any type
        return _shown(error)
    if size > RESULT_BYTES_MAX:
        return f"it takes {size} bytes; the limit is {RESULT_BYTES_MAX}"
    return None


def _is_well_formed(result: CheckResult) -> bool:
    """Whether each field of a result has its declared type. Structs do not check this."""
    return (
        isinstance(result.verdict, Verdict)
        and all(isinstance(text, str) for text in (result.checker, result.reason))
        and all(isinstance(line, str) for line in result.explanation)
        and all(isinstance(index, int) for index in result.operations)
        and isinstance(result.details, dict)
    )


def _shown(value: object, tell: Callable[[object], str] = repr) -> str:
    """Return `value` as text of limited length, even if a method of its class fails."""
    try:
        with telling_interrupts():
            return _text(tell(value))
    except (UserInterrupt, SpentError):
        raise
    except BaseException:  # noqa: BLE001 - a method of a checker's class may raise anything
        return f"a {type(value).__name__}"


def _text(text: object) -> str:
    """Return `text` in a form that JSON can store, shortened if it is too long."""
    return str(text)[:_SHOWN_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
