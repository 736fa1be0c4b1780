"""Writes the first sentence of each section. It explains one of the rows as an example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harness.errors import counted
from results.questions.aggregate import Rows
from results.questions.baseline import Comparison
from results.questions.failures import ANY
from results.questions.uplift import OUTCOMES
from results.report.number_words import TIMES, count, duration, p_value, ratio, share
from results.report.populations import ALL
from results.report.section import Report

Row = Mapping[str, Any]


def reading(report: Report, section: str) -> str:
    """Explain a section by an example from its rows; return "" if no row is suitable."""
    name, choose, write = _READINGS[section]
    rows = choose(report.answers.rows(name))
    if not rows:
        return ""
    row = rows[0]
    words = report.of.words(row["population"]) if "population" in row else ""
    return write(row, "this store" if words == ALL else f"“{words}”")


def compared(comparison: Comparison) -> str:
    """Explain how to read a comparison of two labels, by the example of its first line."""
    line = comparison.lines[0]
    write = duration if line.unit == "ns" else share
    return (
        f"Each row is a number of both labels: “{line.metric}” is {write(line.baseline_value)} in "
        f"“{comparison.baseline}” and {write(line.label_value)} in “{comparison.label}”, "
        f"{line.verdict} (p {p_value(line.p_adjusted)})."
    )


def _first(rows: Rows) -> Rows:
    return rows[:1]


def _most(*names: str) -> Callable[[Rows], Rows]:
    """Return a function that sorts rows by these columns, largest values first."""
    return lambda rows: sorted(rows, key=lambda row: [-(row[name] or 0) for name in names])


def _striking(rows: Rows) -> Rows:
    """Return rows of `OUTCOMES` whose interval is above 1; the highest intervals come first."""
    certain = [row for row in rows if row["outcome"] in OUTCOMES and (row["low"] or 0) > 1]
    return sorted(certain, key=lambda row: -row["low"])


def _one_failure(rows: Rows) -> Rows:
    return [row for row in rows if row["signature"] != ANY and row["seeds_sure"] is not None]


def _failures(row: Row, _: str) -> str:
    runs = counted(row["runs"], "run")
    return f"Each row is one failure: {runs} ended with “{row['signature']}”."


def _flakes(row: Row, _: str) -> str:
    return (
        f"Each row is a group of cases: {counted(row['cases'], 'case')} ran more than once, "
        f"{counted(row['runs'], 'run')} in all, and {count(row['other_verdicts'])} of the cases "
        "had different verdicts."
    )


def _verdicts(row: Row, of: str) -> str:
    return (
        "Each bar is a group of runs that differ only in the seed: of "
        f"{counted(row['runs'], 'run')} of {of}, {count(row['valid'])} are valid and "
        f"{count(row['invalid'])} invalid."
    )


def _trends(row: Row, of: str) -> str:
    return (
        f"Each row is a group of runs on one day or of one version: on {row['day']}, "
        f"{of} had {counted(row['runs'], 'run')}, of which {count(row['invalid'])} failed."
    )


def _detection(row: Row, of: str) -> str:
    return (
        f"{row['bug']} was found in {count(row['detected'])} of {counted(row['runs'], 'run')} of "
        f"{of}, which is {share(row['rate'])}; the line of a dot is its 95 % interval."
    )


def _seeds(row: Row, of: str) -> str:
    hits, needed = count(row["hits"]), counted(row["seeds_sure"], "seed")
    return (
        f"“{row['signature']}” was seen in {hits} of {counted(row['runs'], 'run')} of {of}, "
        f"so it takes {needed} to see it with a probability of 95 %."
    )


def _clean(row: Row, of: str) -> str:
    judged = row["runs"] - row["unknown"]
    bound = f", so their rate is below {share(row['below'])}" if row["below"] is not None else ""
    return f"Invalid runs of {of}: {count(row['invalid'])} of {count(judged)}{bound}."


def _uplift(row: Row, of: str) -> str:
    return (
        f"While a fault of {row['nemesis']} was active, {OUTCOMES[row['outcome']]} was "
        f"{ratio(row['ratio']).replace(TIMES, 'times')} as likely as without one, in runs of {of}."
    )


def _availability(row: Row, of: str) -> str:
    active = "was" if row["active"] else "was not"
    return (
        f"While a fault of {row['nemesis']} {active} active, mutations were unavailable for "
        f"{duration(row['mutation_down_ns'])} of {duration(row['ns'])}, in runs of {of}."
    )


def _latency(row: Row, of: str) -> str:
    return (
        f"Of {count(row['ok'])} acknowledged operations “{row['f']}” of {of}, half took at most "
        f"{duration(row['p50_ns'])} (p50), and 99 % at most {duration(row['p99_ns'])} (p99)."
    )


def _operations(row: Row, of: str) -> str:
    return (
        f"Of {count(row['ops'])} operations “{row['f']}” of {of}, {count(row['ok'])} were "
        f"acknowledged, {count(row['fail'])} failed and {count(row['info'])} were lost."
    )


def _elections(row: Row, of: str) -> str:
    return f"A run of {of} had {count(row['least'])} to {count(row['most'])} changes of leader."


def _costs(row: Row, _: str) -> str:
    return (
        f"{counted(row['runs'], 'run')} took {duration(row['wall_ns'])} of real time, and their "
        f"checks {duration(row['cpu_ns'])} of CPU."
    )


def _runs(row: Row, _: str) -> str:
    return (
        f"Each row is a run: {row['run']} had {counted(row['ops'], 'operation')} under "
        f"{counted(row['faults'], 'fault')}, and is {row['verdict']}."
    )


_READINGS: Final[dict[str, tuple[str, Callable[[Rows], Rows], Callable[[Row, str], str]]]] = {
    "failures": ("signatures", _first, _failures),
    "flakes": ("repeated_cases", _first, _flakes),
    "verdicts": ("populations", _most("invalid", "runs"), _verdicts),
    "trends": ("trend_by_day", _most("invalid", "runs"), _trends),
    "detection": ("detection_rates", _most("detected", "runs"), _detection),
    "seeds": ("detectability", _one_failure, _seeds),
    "clean": ("clean_rates", _most("invalid", "runs"), _clean),
    "uplift": ("uplift_ratios", _striking, _uplift),
    "availability": ("availability", _most("mutation_down_ns"), _availability),
    "latency": ("latency_by_f", _most("p99_ns"), _latency),
    "operations": ("op_counts", _most("ops"), _operations),
    "elections": ("elections", _most("most"), _elections),
    "costs": ("costs", _first, _costs),
    "runs": ("judged", _most("ops"), _runs),
}
"""For each section: an answer, a function that puts the example row first, and its sentence."""
