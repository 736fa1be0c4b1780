"""The results that runs are to have: the verdicts of the checkers that their cases name, and facts.

Runs of one `Kind` are to have results of the same ids: there are as many ids as checkers and levels
of budget, however many runs. A run over independent keys has a result of a checker for each range
of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harness.case import Case
from harness.errors import HarnessError
from results.judging.budgets import Budget
from results.judging.result_ids import Registry, facts_id, range_id, verdict_id


class Kind(NamedTuple):
    """The properties of a run that determine its required results."""

    workload: str
    others: str  # checkers of the case, a JSON list
    key_ranges: int = 0  # of a run over independent keys


class Wants(NamedTuple):
    """The results that runs of a kind are to have."""

    checks: tuple[tuple[str, tuple[str, ...]], ...]  # a checker, and its ids by level of budget
    facts: str | None  # the id of theirs; `None`: they are not asked for
    gone: tuple[tuple[str, str], ...]  # checkers that cannot be had, and why
    trouble: str  # why no checker can be named; mostly empty


def wants_of(
    kind: Kind,
    registry: Registry,
    budgets: Sequence[Budget],
    checkers: Sequence[str] | None = None,
    *,
    facts: bool = True,
) -> Wants:
    """The required results of runs of this kind; `checkers` replaces their cases' checkers."""
    names, trouble = checkers, ""
    if names is None:
        try:
            names = registry.checkers_of(_like(kind))
        except (HarnessError, msgspec.DecodeError) as error:
            names, trouble = (), str(error)
    checks, gone = [], []
    for name in names:
        if text := registry.trouble(name):
            gone.append((name, text))
            continue
        version = registry.version(name)
        ids = tuple(verdict_id(name, version, each) for each in budgets)
        ranges = range(kind.key_ranges)
        checks += [
            (name, tuple(range_id(result_id, number) for result_id in ids)) for number in ranges
        ]
        if not ranges:
            checks.append((name, ids))
    return Wants(tuple(checks), facts_id() if facts else None, tuple(gone), trouble)


def _like(kind: Kind) -> Case:
    """A case that names the same checkers; raises `UsageError` or `msgspec.DecodeError`."""
    named = msgspec.json.decode(kind.others, type=tuple[str, ...])
    return Case(seed=0, workload=kind.workload, checkers=named)
