"""The layout of each answer as a table: its caption, its columns, and its limit of rows.

A column is a field of the answer. Headings and formats of fields are defined once, for all tables.
A layout only defines exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from results.report.tables import ROWS_MAX, Layout

_WAYS: Final = {
    "count": "runs times valid permitted unknown invalid ops ok fail refused info unanswered "
    "results crashed "
    "detected runs_to_first faults hit healed bit outages unended heals in_outage never untried n "
    "elections least most runs_without highest_term baseline_runs label_runs baseline_hits "
    "label_hits hits seeds_half seeds_sure strata histories held cases other_verdicts "
    "other_histories ok_per_s lines",
    "ns": "length_ns ns_to_first ns active_ns mutation_down_ns read_down_ns mutation_down_max_ns "
    "read_down_max_ns total_ns longest_ns p50_ns p95_ns p99_ns p999_ns max_ns waited_p50_ns "
    "waited_p95_ns waited_max_ns ok_p50_ns ok_max_ns wall_ns cpu_ns run_wall_ns run_cpu_ns",
    "share": "rate below with_rate without_rate share mutation_down read_down",
    "size": "bytes run_bytes",
    "ratio": "ratio",
    "p": "p_adjusted agree_p",
    "run": "run first_run last_run",
    "verdict": "verdict recorded change",
    "words": "signature reason setting_words seen",
    "code": "replay",
    "names": "nemeses active node",
    "yes": "answered",
}
"""Formats of fields. All other fields are formatted as text."""
_WAY_OF: Final = {field: way for way, fields in _WAYS.items() for field in fields.split()}
_HEADINGS: Final = {
    "agree_p": "p-value for agreement",
    "active_ns": "time",
    "after": "label",
    "after_range": "95 % interval",
    "answered": "the target's answer",
    "baseline_hits": "baseline",
    "baseline_runs": "runs",
    "ok_per_s": "ok/s",
    "run_wall_ns": "of a run",
    "run_cpu_ns": "of a run",
    "run_bytes": "of a run",
    "wall_ns": "real time",
    "cpu_ns": "CPU of checks",
    "share": "part of all",
    "seeds_half": "seeds to find it: 50 %",
    "seeds_sure": "95 %",
    "seeds_range": "interval",
    "hits": "failed",
    "held": "valid",
    "mutation_down": "mutations down",
    "read_down": "reads down",
    "label_hits": "label",
    "before": "baseline",
    "before_range": "95 % interval",
    "below": "if 0: rate below",
    "elections": "changes",
    "error_code": "error",
    "f": "operation",
    "in_outage": "in an outage",
    "label_runs": "runs",
    "least": "fewest",
    "length_ns": "time in runs",
    "longest_ns": "longest",
    "max_ns": "max",
    "metric": "what",
    "mutation_down_max_ns": "most in one: mutations",
    "mutation_down_ns": "mutations down",
    "n": "operations",
    "ns": "time",
    "ns_to_first": "run time to first",
    "of": "of which runs",
    "ok_max_ns": "longest",
    "ok_p50_ns": "time from heal to ok, p50",
    "ops": "operations",
    "p50_ns": "p50",
    "p95_ns": "p95",
    "p999_ns": "p99.9",
    "p99_ns": "p99",
    "p_adjusted": "p (adjusted)",
    "range": "95 % interval",
    "read_down_max_ns": "reads",
    "read_down_ns": "reads down",
    "refused": "of these refused",
    "replay": "run it again",
    "setting_words": "setting",
    "total_ns": "in all",
    "type": "ended",
    "unended": "not ended by an answer",
    "untried": "not tried",
    "waited_max_ns": "longest",
    "waited_p50_ns": "waited p50",
    "waited_p95_ns": "p95",
    "why": "no interval because",
    "with_rate": "with fault",
    "without_rate": "without",
}
"""Headings of fields. All other fields have their name as heading."""
_UPLIFT: Final = "of nemesis outcome with_rate without_rate ratio range runs why"
_QUANTILES: Final = "ok p50_ns p95_ns p99_ns p999_ns max_ns"
_DOWN: Final = "mutation_down_ns read_down_ns"


def _layout(
    caption: str,
    fields: str,
    *,
    limit: int = ROWS_MAX,
    source: str | None = None,
    headings: Mapping[str, str] = {},
    ways: Mapping[str, str] = {},
    behind: str = "",
) -> Layout:
    """Make a layout of these fields. `headings` and `ways` (formats) override the defaults."""
    headings, ways = {**_HEADINGS, **headings}, {**_WAY_OF, **ways}
    columns = (
        (field, headings.get(field, field.replace("_", " ")), ways.get(field, "text"))
        for field in fields.split()
    )
    return Layout(caption, tuple(columns), limit, source, behind)


def _latency(caption: str, by: str, *, limit: int = ROWS_MAX) -> Layout:
    return _layout(caption, f"{by} {_QUANTILES}", limit=limit, headings={"ok": "acknowledged"})


_COMPARED: Final = (
    "verdict metric setting before before_range baseline_runs after after_range label_runs "
    "p_adjusted"
)
_TREND: Final = "runs invalid unknown rate range ok_per_s mutation_down read_down p50_ns p99_ns"
_TREND_HEADINGS: Final = {"rate": "invalid rate"}

LAYOUTS: Final[dict[str, Layout]] = {
    "signatures": _layout(
        "Failures: runs that are not valid, by signature",
        "verdict signature runs shapes of first_run seen reason replay",
        headings={
            "signature": "signature: checker · rule · fault",
            "shapes": "operations",
            "reason": "its reason",
        },
        ways={"of": "words"},
        behind="verdict signature target bugs",
    ),
    "signature_changes": _layout(
        "New, gone and known failures; changes that chance does not explain come first",
        "change verdict signature bugs baseline_hits baseline_runs label_hits label_runs says "
        "p_adjusted first_run",
        headings={"baseline_runs": "of", "label_runs": "of", "says": "", "p_adjusted": "p"},
        ways={"bugs": "names"},
        limit=60,
        behind="verdict signature target bugs",
    ),
    "flakes": _layout(
        "Cases whose runs with the same code had different outcomes",
        "differs of seed code environment runs held unknown invalid histories run last_run",
        headings={"last_run": "another"},
        behind="setting seed versions",
    ),
    "repeated_cases": _layout(
        "Cases that ran several times with the same code",
        "of code environment cases runs other_verdicts other_histories",
    ),
    "trend_by_code": _layout(
        "By version of the code, in the order of their first run",
        f"of code {_TREND}",
        headings=_TREND_HEADINGS,
        behind="setting label versions",
    ),
    "trend_by_day": _layout(
        "By day (UTC)", f"of day {_TREND}", headings=_TREND_HEADINGS, behind="setting label day"
    ),
    "latency_trends": _latency(
        "Latency by kind of operation, on each day and with each code", "of dimension value f"
    ),
    "detectability": _layout(
        "Seeds until a failure is seen, by failure",
        "of signature hits runs rate range seeds_half seeds_sure seeds_range",
        headings={"range": "95 % interval"},
        behind="setting label signature",
    ),
    "survival": _layout(
        "The share of runs without a failure after a number of operations",
        "of ops at_risk failed survival range",
        ways={"survival": "share", "at_risk": "count", "failed": "count"},
        headings={"ops": "operations", "at_risk": "runs that far"},
    ),
    "uplift_stratified": _layout(
        "Pooled over groups of runs that differ in label, profile or options only",
        "group nemesis outcome ratio range strata runs agree_p why",
        headings={"group": "of which runs"},
        limit=200,
    ),
    "uplift_by_role": _layout(
        "Operations that fail or are lost: by phase, and by the role of the node that was hit",
        "of nemesis phase role against_words with_rate without_rate ratio range runs why",
        headings={
            "role": "it hit",
            "against_words": "against",
            "with_rate": "fails or is lost",
            "without_rate": "against",
        },
        limit=200,
    ),
    "availability_quantiles": _layout(
        "Unavailable time of a run",
        "of kind runs runs_without p50_ns p95_ns p99_ns max_ns",
        headings={"runs_without": "runs without"},
    ),
    "costs": _layout(
        "Costs",
        "by value runs share wall_ns run_wall_ns cpu_ns run_cpu_ns bytes run_bytes length_ns",
        headings={"value": "which"},
    ),
    "failing_runs": _layout(
        "All runs that are not valid, with reasons",
        "run verdict of seed checker rule signature reason replay",
        limit=200,
        ways={"of": "words"},
    ),
    "populations": _layout(
        "Groups of runs with one label and cases that differ only in the seed",
        "setting of runs valid permitted unknown invalid ops unanswered info length_ns",
        behind="setting label",
    ),
    "checkers": _layout(
        "Verdicts by checker; a crashed checker also counts as unknown",
        "of checker results valid permitted unknown invalid crashed",
    ),
    "permitted": _layout(
        "Anomalies that the profile permits, with their frequency",
        "of profile permit checker runs times first_run",
    ),
    "changed_verdicts": _layout(
        "Runs whose recorded verdict differs from the new verdict",
        "run recorded verdict",
        headings={"verdict": "now"},
    ),
    "detection_rates": _layout(
        "Detection by bug switch",
        "bug of runs detected unknown rate range runs_to_first ns_to_first first_run",
    ),
    "detection_by_nemesis": _layout("Detections by nemesis", "bug of nemeses runs detected"),
    "detection_by_checker": _layout(
        "Detections by checker", "bug of checker detected", headings={"detected": "runs"}
    ),
    "clean_rates": _layout(
        "Runs without a bug switch",
        "of runs invalid unknown rate range below length_ns",
        headings={"rate": "invalid rate"},
    ),
    "uplift_ratios": _layout("Effects of faults on all operations of clients", _UPLIFT),
    "uplift_by_operation": _layout("By kind of operation", _UPLIFT, source="uplift_ratios"),
    "availability": _layout(
        "Time of the chaos phase, with and without a fault of each nemesis",
        f"of nemesis active runs ns {_DOWN}",
        headings={"active": "fault active"},
        ways={"active": "yes"},
    ),
    "faults": _layout(
        "Faults: injected, with a target, healed, with a measured bite; time under them",
        f"of nemesis runs faults hit healed bit active_ns {_DOWN} mutation_down_max_ns "
        "read_down_max_ns",
    ),
    "outages": _layout(
        "Outages by the nemeses active when they began",
        "of active kind outages runs total_ns longest_ns unended",
    ),
    "outage_after_heal": _layout(
        "Outages during which a fault was healed, and their duration after the heal",
        "of nemesis kind heals in_outage never p50_ns max_ns",
        headings={"never": "never ended", "max_ns": "longest"},
    ),
    "recovery": _layout(
        "Time from a heal until an operation of each kind succeeds again",
        "of nemesis f heals untried never waited_p50_ns waited_p95_ns waited_max_ns ok_p50_ns "
        "ok_max_ns",
        headings={"never": "never succeeded"},
    ),
    "latency_by_f": _latency("By kind of operation", "of f"),
    "latency_by_active": _latency("By nemeses active at the invocation", "of active f"),
    "latency_by_phase": _latency("By phase of the run", "of phase f"),
    "latency_by_node": _latency("By the node that answered", "of node f"),
    "latency_by_run": _latency("Runs with the highest p99", "run f", limit=20),
    "op_counts": _layout(
        "Operations by outcome", "of f ops ok fail refused info", headings={"ops": "all"}
    ),
    "errors": _layout(
        "Errors, the most frequent first", "of f type error_code answered n runs", limit=50
    ),
    "info_losses": _layout(
        "Operations lost to info, by nemesis active at the invocation", "of nemesis f n runs"
    ),
    "elections": _layout("Changes of leader in a run", "of runs elections least most runs_without"),
    "election_causes": _layout(
        "Nemeses active when a new leader was seen", "of active elections runs highest_term"
    ),
    "trends": _layout(
        "Labels of each setting, in the order of their first run",
        "setting_words label runs valid permitted unknown invalid ops unanswered info length_ns",
        source="populations",
    ),
    "judged": _layout(
        "All runs",
        "run verdict of seed ops faults elections length_ns",
        limit=1000,
        headings={"elections": "changes of leader"},
    ),
    "regressions": _layout(
        "Worse or better",
        _COMPARED,
        limit=40,
    ),
    "no_evidence": _layout(
        "No evidence of a difference", _COMPARED, limit=40, source="regressions"
    ),
}
