"""The first lines of a report, for the page, the terminal and `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.errors import EXIT_CRASH, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, counted
from harness.ops import Verdict
from harness.verdict.known import KEY
from results.facts.schema import LIST_SEPARATOR
from results.questions.aggregate import Answers
from results.questions.baseline import Comparison
from results.questions.failures import KNOWN, RULE, comparable
from results.report.number_words import count, duration, interval, ratio, share
from results.report.populations import Populations

LINES_MAX: Final = 20
NO_VERDICT: Final = "no checker could judge it, see the problems"
EXPECTED: Final = "expected"
FAILING_MAX: Final = 10
BUGS_MAX: Final = 3
"""Maximum number of bugs that get a phrase each in the headline."""
LINE_CHARS_MAX: Final = 160
_VERDICTS: Final = tuple(verdict.value for verdict in Verdict)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of all runs of the report."""

    store: str
    label: str | None
    engine: str
    engine_why: str = ""  # a hint about another engine; usually empty
    executor: str
    runs: int
    repeats: int  # runs whose history equals another run's, so they are no independent trials
    verdicts: dict[str, int]
    crashed: int  # folders of runs that left only their case
    not_judged: int = 0  # runs without any result, not counted in `runs`; see `problems`
    ops: int
    ok: int
    fail: int
    refused: int
    info: int
    length_ns: int
    faults: int
    elections: int
    results_new: int
    results_known: int
    results_unsettled: int  # results left unknown: time or memory ran out, or a worker died
    check_cpu_s: float
    check_wall_s: float
    problems: tuple[tuple[str, str, str], ...]
    problems_total: int
    excused: int = 0  # runs with a known failure; they do not change the exit code
    expected: int = 0  # invalid runs with a bug switched on; they do change the exit code
    expectations: str = ""  # how many runs with each bug found it, in words; empty without bugs
    gone: tuple[str, ...] = ()  # known failures that occurred in no run
    exit_code: int
    verdict: str  # the headline: the worst verdict, or `EXPECTED` if only runs with a bug fail


def exit_code(verdicts: Mapping[str, int], *, crashed: int, unjudged: int) -> int:
    """Return the exit code of the worst outcome: invalid, else crash, else unknown or unjudged."""
    if verdicts.get("invalid"):
        return EXIT_INVALID
    if crashed:
        return EXIT_CRASH
    judged = verdicts.get("valid") or verdicts.get("permitted")
    if verdicts.get("unknown") or unjudged or not judged:
        return EXIT_UNKNOWN
    return EXIT_VALID


def summarise(answers: Answers, **fields: Any) -> Summary:
    """Make a summary from the answer `totals`, and from `fields` for everything else."""
    (totals,) = answers.rows("totals")
    verdicts = {name: totals.pop(name) for name in _VERDICTS}
    unjudged = fields.pop("unjudged") + fields.get("not_judged", 0)
    failures = answers.rows("signatures")
    excused = Counter[str]()
    with_bug = Counter[str]()
    for row in failures:
        if answers.known_failures.excuses(row["signature"]):
            excused[row["verdict"]] += row["runs"]
        elif row["bugs"]:
            with_bug[row["verdict"]] += row["runs"]
    without = {"crashed": fields["crashed"], "unjudged": unjudged}
    counted = _as_valid(verdicts, excused)
    code = exit_code(counted, **without)
    expected = with_bug["invalid"]
    headline = exit_code(_as_valid(counted, with_bug), **without) if expected else code
    passed = "permitted" if counted["permitted"] else "valid"
    passed = EXPECTED if expected else KEY if excused else passed
    words = {EXIT_INVALID: "invalid", EXIT_CRASH: "crash", EXIT_VALID: passed}
    return Summary(
        expected=expected,
        expectations=_expectations(answers.rows("populations")),
        verdict=words.get(headline, "unknown"),
        verdicts=verdicts,
        excused=excused.total(),
        gone=tuple(
            f"{entry.signature} ({entry.words})"
            for entry in answers.known_failures.gone(row["signature"] for row in failures)
        ),
        exit_code=code,
        **totals,
        **fields,
    )


def _as_valid(verdicts: Mapping[str, int], some: Counter[str]) -> dict[str, int]:
    changed = {name: number - some[name] for name, number in verdicts.items()}
    return {**changed, "valid": changed["valid"] + some.total()}


def _expectations(populations: Sequence[Mapping[str, Any]]) -> str:
    """Write how many runs found each bug: `107 of 299 runs with NO-LEASE found it (expected)`."""
    failed, judged = Counter[str](), Counter[str]()
    for row in populations:
        failed[row["bugs"]] += row["invalid"]
        judged[row["bugs"]] += row["runs"] - row["unknown"]
    bugs = sorted(name for name in judged if name)
    phrases = [
        f"{count(failed[name])} of {_counted(judged[name], 'run')} with "
        f"{name.replace(LIST_SEPARATOR, ' and ')} found it{' (expected)' if failed[name] else ''}"
        for name in bugs
    ]
    if len(bugs) > BUGS_MAX:
        runs = _counted(sum(judged[name] for name in bugs), "run")
        hits = sum(failed[name] for name in bugs)
        phrases = [f"{count(hits)} of {runs} with one of {len(bugs)} bugs found it (expected)"]
    if bugs and judged[""]:
        phrases.append(f"{count(failed[''])} of {_counted(judged[''], 'run')} without a bug failed")
    return " · ".join(phrases)


def text_of(summary: Summary, answers: Answers, page: str) -> list[str]:
    """Write the report as lines for a terminal. The last line has the verdict and the page."""
    counts = ", ".join(f"{count(summary.verdicts[name])} {name}" for name in _VERDICTS)
    runs = _counted(summary.runs + summary.not_judged, "run")
    left = f", {count(summary.not_judged)} not judged" if summary.not_judged else ""
    left += f", {count(summary.crashed)} crashed" if summary.crashed else ""
    ended = (
        f"{count(summary.ok)} ok, {count(summary.fail)} fail ({count(summary.refused)} of them "
        f"refused), {count(summary.info)} info"
    )
    cost = f"{summary.check_cpu_s:.1f} s of CPU in {summary.check_wall_s:.1f} s"
    new_and_known = f"{count(summary.results_new)} new, {count(summary.results_known)} known"
    operations = _counted(summary.ops, "operation")
    lines = [
        f"{duration(summary.length_ns)} in runs, {operations}: {ended}",
        f"{_counted(summary.faults, 'fault')}, {_counted(summary.elections, 'leader change')}",
        f"results of checks: {new_and_known} ({cost}, {summary.executor})",
    ]
    if summary.engine_why:
        lines.append(f"questions answered by {summary.engine}: {summary.engine_why}")
    if summary.results_unsettled:
        lines.append(
            f"{count(summary.results_unsettled)} of them unknown for lack of time, memory or a "
            "worker: --again judges them again"
        )
    if summary.repeats:
        lines.append(f"{repeats_in_words(summary.repeats)}")
    of = Populations(answers.rows("populations"))
    if of.usual:
        lines.insert(0, f"runs, if not described otherwise: {of.usual}")
    if of.shared:
        lines.insert(0, f"all runs: {of.shared}")
    lines += _failing(answers)
    lines += _bounded("known failures that no run has", summary.gone, "see --json")
    lines += _permitted(answers)
    lines += _bugs(answers, of)
    lines += _clean(answers, of)
    lines += _uplift(answers, of)
    lines += _baseline(answers)
    lines += _problems(summary)
    left += f", {count(summary.excused)} excused as known" if summary.excused else ""
    expectations = f"; {summary.expectations}" if summary.expectations else ""
    verdict = f"{summary.verdict.upper()}  {runs}: {counts}{left}{expectations}; page: {page}"
    return [*lines, "", verdict]


def _counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def repeats_in_words(repeats: int) -> str:
    """Explain how runs with equal histories affect confidence intervals."""
    runs = f"{_counted(repeats, 'run')} {'repeats' if repeats == 1 else 'repeat'}"
    return (
        f"{runs} the history of another run, operation by operation: rates count these runs, but "
        "intervals assume independent runs, so they are too narrow"
    )


def _bounded(title: str, lines: Sequence[str], where: str, *, limit: int = LINES_MAX) -> list[str]:
    if not lines:
        return []
    more = len(lines) - limit
    listed = [f"  {line}" for line in lines[:limit]]
    return ["", title, *listed, *([f"  ... and {count(more)} more; {where}"] if more > 0 else [])]


def _failing(answers: Answers) -> list[str]:
    """Write two lines per signature: the number of runs, then its first run with the reason."""
    lines = []
    for row in answers.rows("signatures"):
        runs = _counted(row["runs"], "run")
        reason = row["reason"] or ("no reason given" if row["checker"] else NO_VERDICT)
        bugs = f" with {row['bugs']}" if row["bugs"] else ""
        shapes = f" ({row['shapes']})" if row["shapes"] else ""
        mark = answers.known_failures.mark(row["signature"])
        name = _one_line(row["signature"] + shapes + mark)
        lines.append(f"{row['verdict']:8} {runs}{bugs}: {name}")
        lines.append(f"         first {row['first_run']}: {_one_line(reason)}")
    return _bounded("runs that are not valid", lines, "see the page", limit=2 * FAILING_MAX)


def _permitted(answers: Answers) -> list[str]:
    lines = [
        f"{row['permit']}: {_counted(row['times'], 'time')} in {_counted(row['runs'], 'run')}, "
        f"by {row['checker']}"
        for row in answers.rows("permitted")
    ]
    return _bounded("permitted by the profile", lines, "see the page")


def _bugs(answers: Answers, of: Populations) -> list[str]:
    lines = []
    for row in answers.rows("detection_rates"):
        rate = f"{share(row['rate'])} ({interval(row['low'], row['high'], 'share')})"
        text = f"{row['bug']}: found in {row['detected']} of {_counted(row['runs'], 'run')}, {rate}"
        if row["detected"]:
            text += f"; first in run {row['runs_to_first']}, after {duration(row['ns_to_first'])}"
        lines.append(f"{text} [{of.words(row['population'])}]")
    return _bounded("bug switches (95 % intervals)", lines, "see the page")


def _clean(answers: Answers, of: Populations) -> list[str]:
    lines = []
    for row in answers.rows("clean_rates"):
        text = f"{row['invalid']} of {count(row['runs'] - row['unknown'])} invalid"
        if row["unknown"]:
            text += f" (and {count(row['unknown'])} unknown)"
        if row["below"] is not None:
            text += f": the rate is below {share(row['below'])} at 95 %"
        else:
            text += f": {share(row['rate'])} ({interval(row['low'], row['high'], 'share')})"
        lines.append(f"{text} [{of.words(row['population'])}]")
    return _bounded("runs without a bug switch", lines, "see the page")


def _uplift(answers: Answers, of: Populations) -> list[str]:
    rows = [
        row
        for row in answers.rows("uplift_ratios")
        if row["low"] is not None and (row["low"] > 1 or row["high"] < 1)
    ]
    lines = [
        f"{row['nemesis']}: {row['outcome']} {ratio(row['ratio'])} "
        f"({interval(row['low'], row['high'], 'ratio')}) [{of.words(row['population'])}]"
        for row in sorted(rows, key=lambda row: not of.is_clean(row["population"]))
    ]
    return _bounded(
        "what faults make more likely (95 % intervals that exclude 1)", lines, "see the page"
    )


def _baseline(answers: Answers) -> list[str]:
    comparison = answers.comparison
    if comparison is None:
        return []
    lines = []
    for line in comparison.lines:
        if line.verdict == "no evidence":
            break
        write = duration if line.unit == "ns" else share
        lines.append(
            f"{line.verdict}: {line.metric}, {write(line.baseline_value)} -> "
            f"{write(line.label_value)}, {line.setting} (adjusted p {line.p_adjusted:.2g})"
        )
    against = f"{comparison.label!r} against {comparison.baseline!r}"
    differs = f"they differ in {comparison.differs}"
    if not comparison.settings:
        return ["", f"{against}: nothing can be compared; {differs}{ignore_hint(comparison)}"]
    without = len(comparison.lines) - len(lines)
    title = (
        f"{against}: {without} of {counted(len(comparison.lines), 'comparison')} without evidence"
        + (f"; {differs}" if comparison.differs else "")
    )
    compared = _bounded(title, lines, "see the page") or ["", title]
    return [*compared, *_changes(answers, comparison.label, comparison.baseline)]


def ignore_hint(comparison: Comparison) -> str:
    """Write a hint to use `--ignore`; empty if no part of settings can be ignored."""
    names = ",".join(comparison.ignorable)
    return f"; --ignore {names} also compares runs that differ in nothing else" if names else ""


def _changes(answers: Answers, label: str, baseline: str) -> list[str]:
    """Write a line per failure that only one label has, and count failures that both have."""
    rows = answers.rows("signature_changes")
    lines = [
        f"{row['change']}: {_one_line(row['signature'])}: {row['label_hits']} of "
        f"{_counted(row['label_runs'], 'run')}, before {row['baseline_hits']} of "
        f"{count(row['baseline_runs'])} ({row['says']})"
        for row in comparable(rows)
        if row["change"] != KNOWN
    ]
    old = sum(row["change"] == KNOWN and row["level"] != RULE for row in rows)
    title = f"failures only in {label!r}, or only in {baseline!r}; in both: {old}"
    return _bounded(title, lines, "see the page")


def _problems(summary: Summary) -> list[str]:
    lines = [
        f"{run} ({kind}): {_one_line(text)}" for run, kind, text in summary.problems[:LINES_MAX]
    ]
    more = summary.problems_total - len(lines)
    if not lines:
        return []
    rest = [f"  ... and {count(more)} more; see the page"] if more > 0 else []
    return ["", "problems", *(f"  {line}" for line in lines), *rest]


def _one_line(text: str) -> str:
    clean = "".join(char if char.isprintable() else " " for char in text)
    if len(clean) <= LINE_CHARS_MAX:
        return clean
    return f"{clean[:LINE_CHARS_MAX]}..."
