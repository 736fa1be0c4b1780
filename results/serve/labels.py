"""Two labels side by side: like with like, and which failures only one of them has.

Runs are compared within a *setting* (a case without its seed), as `harness report --baseline` does
(`results.questions.baseline` has the reasons): Fisher's exact test of the shares of invalid runs,
all p-values adjusted together by Holm's procedure. Where a bug is switched on, more of them is
better. Only shares of runs are compared: rates and latencies are for the report, which reads
histories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from results.questions.baseline import BETTER, NO_EVIDENCE, WORSE
from results.serve.groups import Cell, FailureGroup, Share, failures_of
from results.serve.over_time import words_of
from results.serve.run_table import NONE, RunTable
from results.statistics.estimates import ALPHA, fisher_exact, holm

if TYPE_CHECKING:
    from results.facts.intervals import Ints

__all__ = ["LabelComparison", "SettingLine", "SignatureLine", "compare_labels"]

LINES_MAX: Final = 60
_ORDER: Final = {WORSE: 0, BETTER: 1, NO_EVIDENCE: 2}


class SettingLine(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that both labels have."""

    population: str
    setting: str
    bugs: str
    first: Share
    second: Share
    p_adjusted: float
    verdict: str


class SignatureLine(msgspec.Struct, frozen=True, kw_only=True):
    """Equal failures, and how many runs of each label have them."""

    outcome: str
    signature: str
    target: str
    bugs: tuple[str, ...]
    first: int
    second: int
    example: str  # the key of the oldest run, of the second label if it has one


class LabelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both labels as a whole, by setting and by failure; what is cut or left out is counted."""

    first: Cell
    second: Cell
    settings: tuple[SettingLine, ...]
    settings_found: int
    first_left_out: int
    second_left_out: int
    signatures: tuple[SignatureLine, ...]
    signatures_found: int


def compare_labels(table: RunTable, first: Ints, second: Ints) -> LabelComparison:
    """Compare the runs of two labels; both have some."""
    sides = [
        {table.texts["setting"].at(int(own[0])): own for own in table.groups(rows, ("setting",))}
        for rows in (first, second)
    ]
    both = [setting for setting in sides[0] if setting in sides[1]]
    lines = _judged([_line(table, sides[0][setting], sides[1][setting]) for setting in both])
    left_out = [sum(len(own) for name, own in side.items() if name not in both) for side in sides]
    signatures = _signatures(failures_of(table, first), failures_of(table, second))
    return LabelComparison(
        first=Cell(table.outcomes(first)),
        second=Cell(table.outcomes(second)),
        settings=tuple(lines[:LINES_MAX]),
        settings_found=len(lines),
        first_left_out=left_out[0],
        second_left_out=left_out[1],
        signatures=tuple(signatures[:LINES_MAX]),
        signatures_found=len(signatures),
    )


def _line(table: RunTable, first: Ints, second: Ints) -> SettingLine:
    shares = [Cell(table.outcomes(rows)).share for rows in (first, second)]
    one = int(second[0])
    more_is_better = bool(table.texts["bugs"].at(one))
    rates = [share.rate or 0.0 for share in shares]
    better = (rates[1] > rates[0]) == more_is_better
    return SettingLine(
        population=words_of(table, one, "label"),
        setting=table.texts["setting"].at(one),
        bugs=table.texts["bugs"].at(one) or NONE,
        first=shares[0],
        second=shares[1],
        p_adjusted=fisher_exact(
            shares[0].invalid, shares[0].finished, shares[1].invalid, shares[1].finished
        ),
        verdict=NO_EVIDENCE if rates[0] == rates[1] else BETTER if better else WORSE,
    )


def _judged(lines: list[SettingLine]) -> list[SettingLine]:
    """Lines with adjusted p-values and what they allow to say, the telling ones first."""
    adjusted = holm([line.p_adjusted for line in lines])
    judged = [
        msgspec.structs.replace(
            line, p_adjusted=p, verdict=line.verdict if p < ALPHA else NO_EVIDENCE
        )
        for line, p in zip(lines, adjusted, strict=True)
    ]
    return sorted(judged, key=lambda line: (_ORDER[line.verdict], line.p_adjusted, line.population))


def _signatures(first: list[FailureGroup], second: list[FailureGroup]) -> list[SignatureLine]:
    """Failures of either: those that only the second has, only the first, then both."""
    sides = [
        {(one.outcome, one.signature, one.target, one.bugs): one for one in side}
        for side in (first, second)
    ]
    lines = []
    for key in dict.fromkeys((*sides[1], *sides[0])):
        counts = [side[key].runs if key in side else 0 for side in sides]
        outcome, signature, target, bugs = key
        example = sides[1].get(key) or sides[0][key]
        lines.append(
            SignatureLine(
                outcome=outcome,
                signature=signature,
                target=target,
                bugs=bugs,
                first=counts[0],
                second=counts[1],
                example=example.first,
            )
        )
    return sorted(lines, key=lambda line: (line.first > 0, line.second > 0))
