"""Renders a verdict as text of bounded length: results, explanations, and the certificate.

The certificate of a run says what the run actually did: its operations, faults and outages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.cli.styles import (
    HEADLINE_STYLES,
    VERDICT_STYLES,
    indented,
    joined,
    plain,
    styled,
    table,
)
from harness.errors import counted
from harness.ops import CheckResult, Verdict
from harness.verdict.judge import Judgement

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

EXPLANATION_LINES_MAX: Final = 6
EXPLANATION_LINES_LATER: Final = 2
"""The maximum number of lines for each explanation but the first, in brief output."""
LINE_CHARACTERS_MAX: Final = 400
LINE_CHARACTERS_BRIEF: Final = 200
REASON_CHARACTERS_BRIEF: Final = 120
FAULT_LINES_MAX: Final = 30
UNKNOWN_SHARE_NORMAL: Final = 0.05
"""The highest normal share of operations with an unknown outcome. The output mentions a higher
one."""
_WORDS: Final = {
    Verdict.VALID: "every promise checked was kept",
    Verdict.PERMITTED: "nothing happened except what the profile permits",
    Verdict.UNKNOWN: "nothing was proven",
    Verdict.INVALID: "a promise was broken",
}


def describe(judgement: Judgement, *, certificate: bool = True) -> list[str]:
    """Format a whole judgement as plain lines, with or without the certificate."""
    return plain(described(judgement, full=True, certificate=certificate))


def described(
    judgement: Judgement, *, full: bool = False, certificate: bool = True
) -> list[RenderableType]:
    """Format a judgement for a terminal. `full` also prints what brief output leaves out."""
    most = LINE_CHARACTERS_MAX if full else LINE_CHARACTERS_BRIEF
    reason_most = LINE_CHARACTERS_MAX if full else REASON_CHARACTERS_BRIEF
    rows = [
        (result.checker, _in_colour(result.verdict.value), _cut(result.reason, reason_most))
        for result in judgement.results
    ]
    parts: list[RenderableType] = [table(rows, indent=2)]
    lines_max = EXPLANATION_LINES_MAX
    for result in judgement.results:
        if result.verdict is not Verdict.VALID and result.explanation:
            parts += ["", joined(f"{result.checker}: ", _in_colour(result.verdict.value))]
            lines = [_cut(line, most) for line in result.explanation]
            parts += map(indented, _bounded(lines, lines_max))
            lines_max = EXPLANATION_LINES_MAX if full else EXPLANATION_LINES_LATER
    certified = _with_certificate(judgement.results) if certificate else None
    if certified is not None and full:
        parts += ["", "certificate (what this run really did):"]
        parts += _certificate(certified.details["certificate"])
    elif certified is not None:
        parts += ["", *map(indented, _in_few_lines(certified))]
    return parts


def verdict_line(verdict: Verdict, numbers: str = "", more: str = "") -> Text:
    """Make the last line of the output: the verdict in colour, then `numbers`, then `more`."""
    words = verdict.value
    about = f"{numbers}: {_WORDS[verdict]}" if numbers else _WORDS[verdict]
    return joined(styled(f"{words.upper()}  {about}", HEADLINE_STYLES[words]), more)


def in_numbers(judgement: Judgement) -> str:
    """Count the operations, faults and leader changes in words; empty without a certificate."""
    certified = _with_certificate(judgement.results)
    if certified is None:
        return ""
    certificate, faults = certified.details["certificate"], _faults(certified)
    operations = sum(_numbers(certificate.get("operations")).values())
    numbers = [counted(operations, "operation")]
    numbers += [counted(faults, "fault")] if faults else ["no fault"]
    changes = certificate.get("changes_of_leader")
    if isinstance(changes, int):
        numbers.append(counted(changes, "leader change"))
    elif isinstance(changes, str) and changes != "not observed":
        words = "leader change" if changes.endswith(" 1") else "leader changes"
        numbers.append(f"{changes} {words}")
    return ", ".join(numbers)


def _in_colour(verdict: str) -> Text:
    return styled(verdict, VERDICT_STYLES[verdict])


def _with_certificate(results: Sequence[CheckResult]) -> CheckResult | None:
    has = (each for each in results if isinstance(each.details.get("certificate"), Mapping))
    return next(has, None)


def _numbers(counts: object) -> dict[str, int]:
    if not isinstance(counts, Mapping):
        return {}
    return {str(name): number for name, number in counts.items() if isinstance(number, int)}


def _fault_rows(result: CheckResult) -> list[Mapping[str, Any]]:
    rows = result.details.get("faults")
    listed = rows if isinstance(rows, (list, tuple)) else ()
    return [row for row in listed if isinstance(row, Mapping)]


def _faults(result: CheckResult) -> int:
    left_out = result.details.get("faults_not_shown", 0)
    return len(_fault_rows(result)) + (left_out if isinstance(left_out, int) else 0)


def _in_few_lines(result: CheckResult) -> list[str]:
    """Return a line with the certificate's main counts, and perhaps a line with unusual ones."""
    certificate = result.details["certificate"]
    kinds = _numbers(certificate.get("operations"))
    outcomes = {"ok": "succeeded", "fail": "refused or failed", "info": "unknown"}
    parts = [", ".join(f"{kinds.get(kind, 0)} {words}" for kind, words in outcomes.items())]
    unmeasured, idle = 0, Counter[str]()
    for row in _fault_rows(result):
        bite = row.get("bite")
        count = bite.get("count") if isinstance(bite, Mapping) else None
        if not row.get("targets") or count == 0:
            idle[str(row.get("nemesis"))] += 1
        elif count is None:
            unmeasured += 1
    faults = _faults(result)
    if faults:
        hit = faults - unmeasured - idle.total()
        if faults == 1:
            effect = "which hit" if hit else "which hit nothing"
            effect = "with an effect that cannot be measured" if unmeasured else effect
        else:
            effect = f"{hit} of them hit" if hit < faults else "all of them hit"
            effect += f", {unmeasured} not measurable" if unmeasured else ""
        parts.append(f"{counted(faults, 'fault')}, {effect}")
    longest = certificate.get("longest_outage")
    if longest is not None:
        parts.append(f"longest outage {longest}")
    lines = ["; ".join(parts)]
    unusual = [f"{counted(n, 'fault')} of {name} hit nothing" for name, n in sorted(idle.items())]
    starved = certificate.get("too_few_processors")
    if starved is not None:
        unusual.insert(0, f"too few processors {starved}")
    unknown = kinds.get("info", 0)
    if unknown > UNKNOWN_SHARE_NORMAL * sum(kinds.values()):
        of = counted(sum(kinds.values()), "operation")
        unusual.append(f"{unknown} of {of} {'has' if unknown == 1 else 'have'} an unknown outcome")
    return [*lines, *([f"unusual: {'; '.join(unusual)}"] if unusual else [])]


def _cut(text: str, most: int) -> str:
    """Cut `text` to `most` characters, at a space if possible; long reasons quote whole tables."""
    if len(text) <= most:
        return text
    end = text.rfind(" ", most // 2, most)
    return f"{text[: end if end > 0 else most]} ..."


def _certificate(certificate: Mapping[str, Any]) -> list[str]:
    """Format a certificate: one line per entry, and one per item of a list, up to a limit."""
    lines = []
    for name, value in certificate.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
            lines.append(f"  {label:24} {text}")
        elif isinstance(value, (list, tuple)):
            lines.append(f"  {label:24} {len(value) or 'none'}")
            listed = _bounded([_plain(item) for item in value], FAULT_LINES_MAX)
            lines += [f"    {line}" for line in listed]
        else:
            lines.append(f"  {label:24} {_plain(value)}")
    return lines


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_plain(item) for item in value)
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def _bounded(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"... and {len(lines) - most} more, in results.json"]
