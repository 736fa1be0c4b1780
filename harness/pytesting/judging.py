"""The fixture `history`: the history of a test's last run, and checks of it by any checkers.

`enforce` turns a verdict into a failing test, for `run_case` as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from harness.cli.run.artefacts import REPORTERS_DEFAULT, chosen_reporters, make_artefacts
from harness.cli.run.verdict_text import describe
from harness.errors import UsageError
from harness.ops import History, Verdict
from harness.pytesting.runs import Fixture, JudgedRun, RunsOfTest
from harness.registry import load_plugin, plugin_names
from harness.store import load_run
from harness.verdict.judge import Judgement, judge
from harness.verdict.limits import CHECK_TIME_LIMIT_S


class HistoryOfTest(Fixture):
    """The fixture `history`: the history of a test's last run, and methods to judge it."""

    @property
    def ops(self) -> History:
        """The history of this test's last run; raises `UsageError` before the first run."""
        if self._runs.last is None:
            raise UsageError(
                "nothing ran in this test yet, or the last run did not start: use run_case(...) or "
                "cluster(...).run"
            )
        return self._runs.last.history

    def check(
        self,
        *checkers: str,
        expect: str = "valid",
        allow_unknown: bool = False,
        check_time_limit: float = CHECK_TIME_LIMIT_S,
    ) -> JudgedRun:
        """Judge the last run by the named checkers; fail the test unless the verdict is `expect`.

        `harness list checkers` has their names. A workload's checkers do not judge by default,
        because they expect the phases of a whole run, which a test's coroutine does not have.
        """
        __tracebackhide__ = True
        if not checkers:
            installed = ", ".join(plugin_names("checkers"))
            raise UsageError(f"history.check() names no checker; name some of: {installed}")
        expected = expected_verdict(expect)
        loaded = [load_plugin("checkers", name) for name in checkers]
        if not self.ops.pairs:
            raise UsageError(
                "no operation was recorded, so there is nothing to judge: use live.invoke(...) or "
                "live.traffic() in the coroutine"
            )
        last = self._runs.last
        assert last is not None
        judgement = judge(last.history, last.case, loaded, time_limit_s=check_time_limit)
        replay = self._runs.test_again(last.record.environment)
        self._runs.judged(judgement.results, replay)
        run = last.with_verdict(judgement, replay)
        return enforce(self._runs, run, expected, allow_unknown=allow_unknown)

    def load(self, folder: Path | str) -> History:
        """Return the history of a stored run, such as a run that failed once."""
        return load_run(Path(folder)).history


def expected_verdict(text: str) -> Verdict:
    """Return the verdict that `expect` names; raises `UsageError`."""
    try:
        return Verdict(text)
    except ValueError:
        names = ", ".join(verdict.value for verdict in Verdict)
        raise UsageError(f"expect is {text!r}; it must be one of {names}") from None


def enforce(
    runs: RunsOfTest, run: JudgedRun, expected: Verdict, *, allow_unknown: bool
) -> JudgedRun:
    """Return `run` if its verdict is acceptable, else fail the test with all details."""
    __tracebackhide__ = True
    permits = expected is Verdict.PERMITTED and run.verdict is Verdict.VALID
    if run.verdict is expected or permits or (run.verdict is Verdict.UNKNOWN and allow_unknown):
        return run
    artefacts = make_artefacts(run.folder, chosen_reporters(REPORTERS_DEFAULT))
    again = runs.test_again(run.environment)
    facts = {
        "run folder": runs.shown(run.folder),
        **{name: runs.shown(Path(path)) for name, path in artefacts.items()},
        "environment": run.environment,
        "seed": str(run.case.seed),
        "replay": run.replay,
        "test again": again if again != run.replay else "",
    }
    pytest.fail(_failure_text(run, expected, facts), pytrace=False)


def _failure_text(run: JudgedRun, expected: Verdict, facts: Mapping[str, str]) -> str:
    """Return the text that pytest shows in place of a traceback. A traceback would say less."""
    if expected is not Verdict.VALID:
        head = f"the verdict is {run.verdict.value}, expected {expected.value}"
    elif run.verdict is Verdict.PERMITTED:
        head = "PERMITTED: not valid, though the profile permits it (expect='permitted' accepts it)"
    elif run.verdict is Verdict.INVALID:
        head = "INVALID: a promise was broken"
    else:
        head = "UNKNOWN: nothing was proven; see the reasons (allow_unknown=True accepts this)"
    lines = [f"harness: {head}"]
    lines += describe(Judgement(run.results), certificate=run.verdict is not Verdict.INVALID)
    lines.append("")
    lines += [f"{name:12} {value}" for name, value in facts.items() if value]
    return "\n".join(lines)


def as_names(checkers: str | Iterable[str] | None) -> list[str] | None:
    """Return the names in `checkers`, or `None` for `None`; raises `UsageError` for no names."""
    if checkers is None:
        return None
    names = [checkers] if isinstance(checkers, str) else list(checkers)
    if not names:
        raise UsageError("checkers is []; name at least one, or leave it out")
    return names
