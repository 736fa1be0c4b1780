"""Writes the text of a run's page: verdict, reason, coverage of the run, properties of the case."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.errors import counted
from harness.ops import CheckResult, History, OpType, PartialOrder, Verdict
from harness.store import StoredRun
from harness.verdict.explain import counterexample_of
from results.statistics.estimates import quantiles

SENTENCES_MAX: Final = 60
SENTENCE_CHARS_MAX: Final = 4_000
OPERATIONS_MAX: Final = 2_000
ITEMS_MAX: Final = 300
DRAWINGS_MAX: Final = 4
DRAWING_CHARS_MAX: Final = 100_000
ORDERS_MAX: Final = 8
CORE_DRAWN_MAX: Final = 12


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `results.json`. If the file is missing, `note` explains why."""

    checkers: tuple[CheckResult, ...] = ()
    verdict: Verdict = Verdict.UNKNOWN
    replay: str = ""
    note: str = ""


def read_results(folder: Path) -> Results:
    """Read the results in a run's folder. A missing or broken file gives a note, not an error."""
    path = folder / "results.json"
    if not path.is_file():
        return Results(note="this run was never checked: there is no results.json in its folder")
    try:
        return msgspec.json.decode(path.read_bytes(), type=Results)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Results(note=f"results.json cannot be read: {error}"[:SENTENCE_CHARS_MAX])


def focus_of(results: Results) -> tuple[int, ...]:
    """Return the operations that the checker with the worst verdict names."""
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.PERMITTED):
        for result in results.checkers:
            if result.verdict is verdict and result.operations:
                return result.operations[:OPERATIONS_MAX]
    return ()


def checker_rows(results: Results) -> list[dict[str, Any]]:
    """Return a row per checker: verdict, reason, sentences and operations, within limits."""
    return [
        {
            "name": result.checker,
            "verdict": result.verdict.value,
            "reason": _short(result.reason),
            "sentences": _sentences(result.explanation),
            "operations": result.operations[:OPERATIONS_MAX],
            "operations_total": len(result.operations),
            "drawings": _drawings(result),
            "orders": _orders(result),
        }
        for result in results.checkers
    ]


def _drawings(result: CheckResult) -> list[str]:
    """Encode a checker's SVG drawings in base64, as images, in which browsers execute no script."""
    drawings = result.details.get("drawings")
    texts = (
        [text for text in drawings if isinstance(text, str)] if isinstance(drawings, list) else []
    )
    small = [text for text in texts if len(text) <= DRAWING_CHARS_MAX][:DRAWINGS_MAX]
    return [base64.b64encode(text.encode()).decode() for text in small]


def _orders(result: CheckResult) -> list[dict[str, Any]]:
    """Return partial linearizations to draw; without any, a few conflicting operations."""
    if result.verdict is not Verdict.INVALID or result.details.get("drawings"):
        return []
    picture = counterexample_of([result])
    if not picture.orders and not 1 < len(picture.core) <= CORE_DRAWN_MAX:
        return []
    core = picture.core[:CORE_DRAWN_MAX]
    failing = picture.failing
    orders = picture.orders[:ORDERS_MAX] or (PartialOrder((), ()),)
    return [
        {
            "failing": failing,
            "core": core,
            "steps": order.steps[-CORE_DRAWN_MAX:],
            "state": _short(order.states[-1]) if order.states else "",
            "pending": order.pending[:CORE_DRAWN_MAX],
        }
        for order in orders
    ]


def _sentences(lines: Sequence[str]) -> list[str]:
    listed = [_short(line) for line in lines[:SENTENCES_MAX]]
    if len(lines) > SENTENCES_MAX:
        listed.append(f"... and {len(lines) - SENTENCES_MAX} more, in results.json")
    return listed


def certificate_of(results: Results) -> list[tuple[str, list[str]]]:
    """Return the certificate, which says what the run covered, as names with lines."""
    rows: list[tuple[str, list[str]]] = []
    for result in results.checkers:
        certificate = result.details.get("certificate")
        if not isinstance(certificate, Mapping):
            continue
        for name, value in certificate.items():
            rows.append((str(name).replace("_", " "), _items(value)))
    return rows


def _items(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        texts = [f"{key}: {_plain(item)}" for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        texts = [_plain(item) for item in value]
    else:
        texts = [_plain(value)]
    listed = [_short(text) for text in texts[:ITEMS_MAX]]
    if len(texts) > ITEMS_MAX:
        listed.append(f"... and {len(texts) - ITEMS_MAX} more, in results.json")
    return listed or ["none"]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def about(stored: StoredRun) -> str:
    """Write one line that distinguishes the run from similar runs."""
    case, record = stored.case, stored.record
    parts = [f"{case.system}/{case.profile}"]
    if case.bugs:
        parts.append(f"with the bug {', '.join(case.bugs)} switched on, so failures are expected")
    parts += [f"workload {case.workload}", f"nemesis {', '.join(case.nemeses)}"]
    if record is not None:
        parts.append(f"in {record.environment}")
    parts.append(f"seed {case.seed}")
    if record is not None and record.label is not None:
        parts.append(f"label {record.label}")
    return _short(" · ".join(parts))


def facts_of_case(stored: StoredRun) -> list[tuple[str, str]]:
    """Return properties of the case and of the run, as pairs of a name and a text."""
    case, record = stored.case, stored.record
    rows = [
        ("target", f"{case.system}, profile {case.profile}"),
        ("bug switches", ", ".join(case.bugs) or "none"),
        ("workload", _with_options(case.workload, case.workload_options)),
        ("nemeses", ", ".join(case.nemeses)),
        ("seed", str(case.seed)),
        (
            "load",
            f"{case.rate:g} operations/s by {counted(case.concurrency, 'client')}, {_limit(case)}",
        ),
    ]
    if case.target_options:
        rows.append(("target options", _with_options("", case.target_options)))
    if case.knobs:
        rows.append(("knobs", _with_options("", case.knobs)))
    if record is not None:
        rows.insert(0, ("environment", record.environment))
        rows += [
            ("started", record.started),
            ("took", _took(record.wall_s, record.simulated_s)),
            ("versions", ", ".join(f"{k} {v}" for k, v in sorted(record.versions.items()))),
            ("history", f"{record.ops} lines, SHA-256 {record.digest}"),
        ]
        if record.label is not None:
            rows.append(("label", record.label))
    return [(name, _short(text)) for name, text in rows]


def _limit(case: Case) -> str:
    return f"{case.time_limit_s:g} s of chaos, {case.op_timeout_s:g} s patience"


def _took(wall_s: float, simulated_s: float | None) -> str:
    wall = f"{wall_s:.1f} s with all checks"
    return wall if simulated_s is None else f"{simulated_s:.1f} s simulated in {wall}"


def _with_options(name: str, options: Mapping[str, Any]) -> str:
    pairs = sorted(options.items())
    text = ", ".join(f"{key} {_plain(value)}" for key, value in pairs if not _is_file(value))
    return f"{name} ({text})" if name and text else name or text


def _is_file(value: object) -> bool:
    """Whether an option is the content of a file. Such content is shown with the case."""
    return isinstance(value, str) and "\n" in value


def by_kind(history: History) -> list[dict[str, Any]]:
    """Return a row per kind of operation: counts by outcome, and latency quantiles of `ok`.

    Quantiles are by nearest rank, in ms. Operations that never completed count as info.
    """
    counts: dict[str, dict[str, int]] = {}
    latencies: dict[str, list[int]] = {}
    for pair in history.pairs:
        row = counts.setdefault(pair.invoke.f, {"ok": 0, "fail": 0, "info": 0})
        row[pair.type.value] += 1
        if pair.type is OpType.OK and pair.completion is not None:
            took = pair.completion.time - pair.invoke.time
            latencies.setdefault(pair.invoke.f, []).append(took)
    return [
        {
            "f": f,
            **counts[f],
            "ms": [round(ns / 1e6, 3) for ns in quantiles(latencies.get(f, []))],
        }
        for f in sorted(counts)
    ]


def _short(text: str) -> str:
    if len(text) <= SENTENCE_CHARS_MAX:
        return text
    return f"{text[:SENTENCE_CHARS_MAX]}…"
