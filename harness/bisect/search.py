"""Finds the first bad commit between a good and a bad commit, by git's bisection.

The failure to look for is the one at the given bad commit (BAD): a checker and the rule that it
reports. A commit is bad if any seed of the case fails in this way. It is good if all seeds run and
none fails in this way; other failures do not matter. A commit at which the case cannot run is
skipped, as by `git bisect skip`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from harness.bisect.at_commit import AtCommit, Commits
from harness.bisect.repository import Commit, Mark, Repository
from harness.case import Case
from harness.errors import UsageError, counted, listed
from harness.trials.trials import Kind

TESTED_MAX: Final = 200
"""The maximum number of commits to test. A bisection of a million commits tests only 20, but each
skipped commit costs one more test."""


class Tested(msgspec.Struct, frozen=True):
    """A tested commit: `seed` is the first seed that failed; `why` is the reason for a skip."""

    commit: Commit
    result: Mark
    seed: int | None = None
    why: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search: the first bad commit, or `candidates` with the reason `why`."""

    first_bad: Commit | None
    candidates: tuple[Commit, ...] = ()
    why: str = ""
    kind: Kind
    seed: int
    tested: tuple[Tested, ...]
    """the tested commits in the order of the tests; GOOD and BAD come first"""


def bisect(
    repository: Repository,
    good: Commit,
    bad: Commit,
    case: Case,
    *,
    seeds: Sequence[int],
    jobs: int,
    setup: str | None = None,
    on_step: Callable[[str], None] = lambda _: None,
    on_tested: Callable[[Tested], None] = lambda _: None,
) -> Found:
    """Find the first bad commit after `good`, up to and including `bad`.

    First tests these two commits. Before each test it calls `on_step` with a line of progress, and
    after each test `on_tested` with the result. Raises `UsageError` if GOOD is not good, BAD is not
    bad, or the case cannot run at one of them.
    """
    repository.require_path(good, bad)
    with repository.scratch() as scratch:
        commits = Commits(case, seeds, jobs=jobs, setup=setup, scratch=scratch)
        tested: list[Tested] = []

        def test(commit: Commit, until: Kind | None = None) -> AtCommit:
            with repository.work_tree(commit, scratch) as tree:
                return commits.test(tree, until=until)

        def note(commit: Commit, result: AtCommit) -> Mark:
            mark = result.mark(kind)
            why = result.doubt(kind) if mark is Mark.SKIP else ""
            tested.append(Tested(commit, mark, result.seed_of(kind), why))
            on_tested(tested[-1])
            return mark

        count = counted(len(seeds), "seed")
        on_step(f"BAD {bad.short}: {count}")
        at_bad = test(bad)
        kind, seed = _failure(bad, at_bad, seeds)
        on_step(f"GOOD {good.short}: {count}")
        at_good = test(good, kind)
        note(good, at_good)
        note(bad, at_bad)
        _require_good(good, at_good, kind)
        with repository.bisection(good, bad, scratch) as bisection:
            while (commit := bisection.current) is not None and len(tested) < TESTED_MAX:
                number = len(tested) - 1
                left = counted(bisection.left_after, "commit")
                on_step(f"test {number}: {commit.short}, then {left} left at most")
                bisection.mark(note(commit, test(commit, kind)))
            candidates, why = bisection.left, "the commits between were skipped"
            if bisection.current is not None:
                why = f"{TESTED_MAX} commits were tested, which is the limit"
            return Found(
                first_bad=bisection.first_bad,
                candidates=candidates,
                why="" if bisection.first_bad is not None else why,
                kind=kind,
                seed=seed,
                tested=tuple(tested),
            )


def _failure(bad: Commit, result: AtCommit, seeds: Sequence[int]) -> tuple[Kind, int]:
    """Return the first failure of the first seed that fails at `bad`, and that seed.

    Raises `UsageError` if no seed fails there, or if the case cannot run.
    """
    for run in result.runs:
        if run.kinds:
            return run.kinds[0], run.seed
    if result.trouble:
        raise UsageError(f"the case cannot run at BAD ({bad.short}): {result.trouble}{_HINT}")
    numbers = listed([str(seed) for seed in seeds], limit=10)
    raise UsageError(
        f"BAD ({bad.short} {bad.subject!r}) is not bad: no checker proves a failure with the "
        f"seeds {numbers}; name a commit at which the case fails, or give more --seeds"
    )


_HINT: Final = (
    "; if its code needs an environment of its own, build one with --setup, such as "
    "--setup 'python3 -m venv .venv && .venv/bin/pip install -e .'"
)


def _require_good(good: Commit, result: AtCommit, kind: Kind) -> None:
    match result.mark(kind):
        case Mark.SKIP:
            if result.trouble:
                raise UsageError(
                    f"the case cannot run at GOOD ({good.short}): {result.trouble}{_HINT}"
                )
            raise UsageError(
                f"GOOD ({good.short} {good.subject!r}) cannot be called good: "
                f"{result.doubt(kind)}; name a commit at which this checker judges the case"
            )
        case Mark.BAD:
            raise UsageError(
                f"GOOD ({good.short} {good.subject!r}) is not good: seed {result.seed_of(kind)} "
                f"also fails there with {kind}; name an older commit"
            )
        case Mark.GOOD:
            return
