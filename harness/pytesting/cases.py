"""The fixture `run_case`: runs a whole case in a test. Another verdict fails the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from harness.case import Case, replay_command
from harness.cli.run.choose import choose_environment
from harness.errors import UsageError
from harness.ops import Verdict
from harness.plan.planning import plan_case
from harness.pytesting.judging import as_names, enforce, expected_verdict
from harness.pytesting.markers import case_from_settings, stored_case
from harness.pytesting.runs import Fixture, JudgedRun, LastRun
from harness.registry import load_plugin
from harness.run.keep import run_and_keep
from harness.run.starting import explaining_start
from harness.verdict.limits import CHECK_TIME_LIMIT_S


class RunCase(Fixture):
    """The fixture `run_case`, which runs and judges a whole case."""

    def __call__(
        self,
        *,
        case: Case | Path | str | None = None,
        checkers: str | Iterable[str] | None = None,
        expect: str = "valid",
        allow_unknown: bool = False,
        check_time_limit: float = CHECK_TIME_LIMIT_S,
        **settings: object,
    ) -> JudgedRun:
        """Run the case that `case` or `settings` describe; returns the run with its verdict.

        `settings` are the flags of `harness run`, with underscores. The workload's checkers or the
        named checkers judge the run. Fails the test unless the verdict is `expect`; `unknown`
        passes only with `allow_unknown`. Raises `UsageError` for impossible settings before
        anything starts.
        """
        __tracebackhide__ = True
        refuse_running_loop("run_case")
        expected = expected_verdict(expect)
        runs = self._runs
        env_name, wanted = runs.merged_settings(settings)
        if case is None:
            asked = case_from_settings(wanted)
        else:
            asked = stored_case(case, {name: settings[name] for name in settings if name != "env"})
        environment = choose_environment(env_name)
        plan = plan_case(asked, environment)
        names = as_names(checkers)
        judges = plan.checkers if names is None else [load_plugin("checkers", n) for n in names]
        folder = runs.new_folder(plan.case)
        if names is None:
            replay = replay_command(runs.shown(folder.path / "case.json"), environment.name)
        else:
            replay = runs.test_again(environment.name)
        with explaining_start(plan):
            kept = run_and_keep(
                plan,
                environment,
                folder,
                run_id=folder.run_id,
                checkers=judges,
                time_limit_s=check_time_limit,
                replay=replay,
            )
        last = LastRun(plan.case, kept.outcome.history, folder, kept.record)
        runs.take(last, kept.judgement.results)
        if kept.outcome.stop_asked:
            raise KeyboardInterrupt
        if kept.unkept is not None and kept.judgement.verdict is not Verdict.INVALID:
            raise kept.unkept
        run = last.with_verdict(kept.judgement, replay)
        return enforce(runs, run, expected, allow_unknown=allow_unknown)


def refuse_running_loop(what: str) -> None:
    """Raise `UsageError` if an event loop already runs: environments have loops of their own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{what} was called on a running event loop, but environments bring a loop of their own; "
        "call it from a plain `def test_...`"
    )
