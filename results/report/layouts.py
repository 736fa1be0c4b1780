"""How each answer is shown as a table: captions, columns and limits, and nothing else."""

from __future__ import annotations

from typing import Final

from results.report.tables import Column, Layout

__all__ = ["LAYOUTS"]

_VERDICTS: Final[tuple[Column, ...]] = (
    ("valid", "valid", "count"),
    ("unknown", "unknown", "count"),
    ("invalid", "invalid", "count"),
)
_DOWN: Final[tuple[Column, ...]] = (
    ("mutation_down_ns", "mutations down", "ns"),
    ("read_down_ns", "reads down", "ns"),
)
_QUANTILES: Final[tuple[Column, ...]] = (
    ("ok", "acknowledged", "count"),
    ("p50_ns", "p50", "ns"),
    ("p95_ns", "p95", "ns"),
    ("p99_ns", "p99", "ns"),
    ("p999_ns", "p99.9", "ns"),
    ("max_ns", "max", "ns"),
)
_NEMESIS: Final[Column] = ("nemesis", "nemesis", "text")
_OPERATION: Final[Column] = ("f", "operation", "text")
_RUNS: Final[Column] = ("runs", "runs", "count")
_RUN: Final[Column] = ("run", "run", "run")
_OF: Final[Column] = ("of", "of which runs", "text")
_BUG: Final[Column] = ("bug", "bug", "text")
_RANGE: Final[Column] = ("range", "95 % interval", "text")
_TIME: Final[Column] = ("length_ns", "time in runs", "ns")

_UPLIFT: Final[tuple[Column, ...]] = (
    _OF,
    _NEMESIS,
    ("outcome", "outcome", "text"),
    ("with_rate", "with fault", "share"),
    ("without_rate", "without", "share"),
    ("ratio", "ratio", "ratio"),
    _RANGE,
    _RUNS,
    ("why", "no interval because", "text"),
)

LAYOUTS: Final[dict[str, Layout]] = {
    "signatures": Layout(
        "What failed: runs that are not valid, by signature",
        (
            ("verdict", "verdict", "verdict"),
            ("signature", "signature: checker · rule · faults · operations", "words"),
            ("runs", "runs", "count"),
            ("of", "of which runs", "words"),
            ("first_run", "first run", "run"),
            ("reason", "its reason", "words"),
            ("replay", "run it again", "code"),
        ),
    ),
    "failing_runs": Layout(
        "Every run that is not valid, and why",
        (
            _RUN,
            ("verdict", "verdict", "verdict"),
            ("of", "of which runs", "words"),
            ("seed", "seed", "text"),
            ("checker", "checker", "text"),
            ("rule", "rule", "text"),
            ("signature", "signature", "words"),
            ("reason", "reason", "words"),
            ("replay", "run it again", "code"),
        ),
        200,
    ),
    "populations": Layout(
        "Runs that are alike: one label, cases that differ in nothing but the seed",
        (
            _OF,
            _RUNS,
            *_VERDICTS,
            ("ops", "operations", "count"),
            ("unanswered", "unanswered", "count"),
            ("info", "info", "count"),
            _TIME,
        ),
    ),
    "checkers": Layout(
        "What each checker said; a crashed one is counted under unknown, too",
        (
            _OF,
            ("checker", "checker", "text"),
            ("results", "results", "count"),
            *_VERDICTS,
            ("crashed", "crashed", "count"),
        ),
    ),
    "changed_verdicts": Layout(
        "Runs that recorded another verdict than they have now",
        (_RUN, ("recorded", "recorded", "verdict"), ("verdict", "now", "verdict")),
    ),
    "detection_rates": Layout(
        "Detection by bug switch",
        (
            _BUG,
            _OF,
            _RUNS,
            ("detected", "detected", "count"),
            ("unknown", "unknown", "count"),
            ("rate", "rate", "share"),
            _RANGE,
            ("runs_to_first", "runs to first", "count"),
            ("ns_to_first", "run time to first", "ns"),
            ("first_run", "first run", "run"),
        ),
    ),
    "detection_by_nemesis": Layout(
        "Which nemeses find it",
        (_BUG, _OF, ("nemeses", "nemeses", "names"), _RUNS, ("detected", "detected", "count")),
    ),
    "detection_by_checker": Layout(
        "Which checkers find it",
        (_BUG, _OF, ("checker", "checker", "text"), ("detected", "runs", "count")),
    ),
    "clean_rates": Layout(
        "Runs without a bug switch",
        (
            _OF,
            _RUNS,
            ("invalid", "invalid", "count"),
            ("unknown", "unknown", "count"),
            ("rate", "invalid rate", "share"),
            _RANGE,
            ("below", "if 0: rate below", "share"),
            _TIME,
        ),
    ),
    "uplift_ratios": Layout("The fault and everything a client does", _UPLIFT),
    "uplift_by_operation": Layout("By kind of operation", _UPLIFT, source="uplift_ratios"),
    "availability": Layout(
        "Time of the chaos phase, with and without a fault of each nemesis",
        (_OF, _NEMESIS, ("active", "fault active", "yes"), _RUNS, ("ns", "time", "ns"), *_DOWN),
    ),
    "faults": Layout(
        "Faults: injected, with a target, healed, with a measured bite; time under them",
        (
            _OF,
            _NEMESIS,
            _RUNS,
            ("faults", "faults", "count"),
            ("hit", "hit", "count"),
            ("healed", "healed", "count"),
            ("bit", "bit", "count"),
            ("active_ns", "time", "ns"),
            *_DOWN,
            ("mutation_down_max_ns", "most in one: mutations", "ns"),
            ("read_down_max_ns", "reads", "ns"),
        ),
    ),
    "outages": Layout(
        "Outages by the nemeses active when they began",
        (
            _OF,
            ("active", "active", "names"),
            ("kind", "kind", "text"),
            ("outages", "outages", "count"),
            _RUNS,
            ("total_ns", "in all", "ns"),
            ("longest_ns", "longest", "ns"),
            ("unended", "not ended by an answer", "count"),
        ),
    ),
    "outage_after_heal": Layout(
        "Outages that a heal fell into: how long they still went on",
        (
            _OF,
            _NEMESIS,
            ("kind", "kind", "text"),
            ("heals", "heals", "count"),
            ("in_outage", "in an outage", "count"),
            ("never", "never ended", "count"),
            ("p50_ns", "p50", "ns"),
            ("max_ns", "longest", "ns"),
        ),
    ),
    "recovery": Layout(
        "After a heal: until an operation of each kind succeeds again",
        (
            _OF,
            _NEMESIS,
            _OPERATION,
            ("heals", "heals", "count"),
            ("untried", "nobody tried", "count"),
            ("never", "never succeeded", "count"),
            ("waited_p50_ns", "waited p50", "ns"),
            ("waited_p95_ns", "p95", "ns"),
            ("waited_max_ns", "longest", "ns"),
            ("ok_p50_ns", "heal to ok p50", "ns"),
            ("ok_max_ns", "longest", "ns"),
        ),
    ),
    "latency_by_f": Layout("By kind of operation", (_OF, _OPERATION, *_QUANTILES)),
    "latency_by_active": Layout(
        "By nemeses active at the invocation",
        (_OF, ("active", "active", "names"), _OPERATION, *_QUANTILES),
    ),
    "latency_by_phase": Layout(
        "By phase of the run", (_OF, ("phase", "phase", "text"), _OPERATION, *_QUANTILES)
    ),
    "latency_by_node": Layout(
        "By the node that answered", (_OF, ("node", "node", "names"), _OPERATION, *_QUANTILES)
    ),
    "latency_by_run": Layout("Runs with the highest p99", (_RUN, _OPERATION, *_QUANTILES), 20),
    "op_counts": Layout(
        "How operations ended",
        (
            _OF,
            _OPERATION,
            ("ops", "all", "count"),
            ("ok", "ok", "count"),
            ("fail", "fail", "count"),
            ("refused", "of these refused", "count"),
            ("info", "info", "count"),
        ),
    ),
    "errors": Layout(
        "Errors, the most frequent first",
        (
            _OF,
            _OPERATION,
            ("type", "ended", "text"),
            ("error_code", "error", "text"),
            ("answered", "the target's answer", "yes"),
            ("n", "operations", "count"),
            _RUNS,
        ),
        50,
    ),
    "info_losses": Layout(
        "Operations lost to info, by nemesis active at the invocation",
        (_OF, _NEMESIS, _OPERATION, ("n", "operations", "count"), _RUNS),
    ),
    "elections": Layout(
        "Changes of leader in a run",
        (
            _OF,
            _RUNS,
            ("elections", "changes", "count"),
            ("least", "fewest", "count"),
            ("most", "most", "count"),
            ("runs_without", "runs without", "count"),
        ),
    ),
    "election_causes": Layout(
        "Nemeses active when a new leader was seen",
        (
            _OF,
            ("active", "active", "names"),
            ("elections", "changes", "count"),
            _RUNS,
            ("highest_term", "highest term", "count"),
        ),
    ),
    "trends": Layout(
        "Labels of each setting, in the order of their first run",
        (
            ("setting_words", "setting", "words"),
            ("label", "label", "text"),
            _RUNS,
            *_VERDICTS,
            ("ops", "operations", "count"),
            ("unanswered", "unanswered", "count"),
            ("info", "info", "count"),
            _TIME,
        ),
        source="populations",
    ),
    "judged": Layout(
        "All runs",
        (
            _RUN,
            ("verdict", "verdict", "verdict"),
            _OF,
            ("seed", "seed", "text"),
            ("ops", "operations", "count"),
            ("faults", "faults", "count"),
            ("elections", "changes of leader", "count"),
            _TIME,
        ),
        1000,
    ),
    "regressions": Layout(
        "Worse, better, or no evidence",
        (
            ("verdict", "verdict", "verdict"),
            ("metric", "what", "text"),
            ("setting", "setting", "text"),
            ("before", "baseline", "text"),
            ("before_range", "95 % interval", "text"),
            ("baseline_runs", "runs", "count"),
            ("after", "label", "text"),
            ("after_range", "95 % interval", "text"),
            ("label_runs", "runs", "count"),
            ("p_adjusted", "p (adjusted)", "p"),
        ),
        40,
    ),
}
