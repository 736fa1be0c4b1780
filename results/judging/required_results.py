"""Determines the results that a report requires for a run: a verdict per checker, and facts.

Runs of one `Kind` require results with the same ids, so the number of ids does not depend on the
number of runs. A run over independent keys requires one result per checker and range of keys.
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
    others: str  # names of the checkers in the case, as a JSON list
    key_ranges: int = 0  # number of ranges of a run over independent keys, else 0


class Wants(NamedTuple):
    """The required results of all runs of a kind."""

    checks: tuple[tuple[str, tuple[str, ...]], ...]
    facts: str | None  # the id of the facts; `None` if facts are not required
    gone: tuple[tuple[str, str], ...]  # checkers that cannot be loaded, with reasons
    trouble: str  # why the checkers of the case cannot be determined; usually empty


def wants_of(
    kind: Kind,
    registry: Registry,
    budgets: Sequence[Budget],
    checkers: Sequence[str] | None = None,
    *,
    facts: bool = True,
) -> Wants:
    """Return the required results of runs of a kind. `checkers` replaces the cases' checkers."""
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
    """Make a case with the same checkers as a kind; raise `UsageError` or `msgspec.DecodeError`."""
    named = msgspec.json.decode(kind.others, type=tuple[str, ...])
    return Case(seed=0, workload=kind.workload, checkers=named)
