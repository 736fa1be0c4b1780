"""Makes the data of a run's page from the run's folder, as plain JSON of limited size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.case import replay_command
from harness.ops import NS_PER_S, History, OpType, Verdict
from harness.store import StoredRun
from harness.timeline import faults_of, nodes_of, reigns_of, states_of
from harness.verdict.explain import Timeline
from results.run.page.columns import OPS_MAX, Selection, Strings, columns, select
from results.run.page.head import Head
from results.run.page.lanes import fault_rows, marks_of, phase_rows, short, span_rows
from results.run.page.logs import read_logs
from results.run.page.summary import (
    Results,
    about,
    by_kind,
    certificate_of,
    checker_rows,
    facts_of_case,
    focus_of,
)
from results.run.page.tables import as_rows as table_rows
from results.run.page.tables import tables_of
from results.why.answer import load_why

PAGE_SCHEMA: Final = 1
LINKS: Final = (
    "case.json",
    "results.json",
    "run.json",
    "history.parquet",
    "trace.json",
    "counterexample.html",
    "why.html",
)


def _wall_at_begin(history: History) -> int | None:
    for op in history.facts("clock"):
        wall_ns = op.value.get("wall_ns") if isinstance(op.value, dict) else None
        if isinstance(wall_ns, int):
            return wall_ns - op.time
    return None


def build(stored: StoredRun, results: Results, *, ops_max: int = OPS_MAX) -> dict[str, Any]:
    """Make all data of a run's page."""
    if stored.foreign:
        results = Results()
    history = stored.history
    focus = focus_of(results)
    faults = faults_of(history)
    middle = min(focus, default=min((fault.begin.index for fault in faults), default=0))
    chosen = select(history, focus, middle, most=ops_max)
    reigns = reigns_of(history)
    moment = _moment(history, focus)
    logs, clock = read_logs(
        stored.folder,
        [(reign.start, reign.node, reign.term) for reign in reigns],
        moment,
        begin_ns=_wall_at_begin(history),
    )
    nodes = nodes_of(history, faults, [log.node for log in logs if log.node != "warden"])
    tables, tables_cut = tables_of(history, focus)
    strings, names = Strings(), Strings()
    lanes = client_lanes(chosen, stored.case.concurrency)
    nemeses = sorted({fault.nemesis for fault in faults})
    verdict = results.verdict if results.checkers else Verdict.UNKNOWN
    replay = results.replay or _replay(stored)
    states = states_of(history, faults)
    head = Head(stored, results, Timeline(history, faults, reigns, states, nodes))
    return {
        "schema": PAGE_SCHEMA,
        "title": f"{stored.folder.resolve().parent.name}/{stored.folder.resolve().name}",
        "verdict": verdict.value,
        **head.data(replay, logs),
        "about": about(stored),
        "notes": _notes(stored, results, chosen),
        "checkers": checker_rows(results),
        "focus": focus,
        "focus_facts": _facts_among(history, focus),
        "certificate": certificate_of(results),
        "facts": facts_of_case(stored),
        "replay": replay,
        "links": [name for name in LINKS if (stored.folder / name).is_file()],
        "kinds": by_kind(history),
        "end": max((op.time for op in history), default=0),
        "shown": chosen.range_ns() if not chosen.complete else None,
        "total": chosen.total,
        "phases": phase_rows(history),
        "faults": fault_rows(faults, nemeses),
        "nemeses": [short(nemesis) for nemesis in nemeses],
        "reigns": span_rows(reigns),
        "nodes": [short(node) for node in nodes],
        "states": span_rows(states),
        "marks": marks_of(history),
        "why": _why(stored),
        "tables": table_rows(tables),
        "tables_cut": tables_cut,
        "logs": [msgspec.to_builtins(log) for log in logs],
        "log_clock": clock,
        "ops": columns(chosen.pairs, lanes, strings, names),
        "lanes": max(lanes.values(), default=-1) + 1,
        "strings": strings.items(),
        "names": names.items(),
    }


def _why(stored: StoredRun) -> dict[str, Any] | None:
    """Return what `harness why` computed for this run, or `None` if there is nothing to draw.

    Each of `points` has a time, and how many of the reruns that were equal up to it failed.
    `from` is the time from which the failure was inevitable.
    """
    why = load_why(stored.folder, stored.history.digest())
    if why is None or not why.points:
        return None
    points = [
        (point.at_ns, point.count.failed, point.count.runs, point.low, point.high)
        for point in why.points
    ]
    return {"points": points, "from": why.inevitable.from_ns if why.inevitable.is_turn else None}


def _moment(history: History, focus: Sequence[int]) -> int | None:
    wanted = set(focus)
    return min((op.time for op in history if op.index in wanted), default=None)


def _facts_among(history: History, focus: Sequence[int]) -> list[tuple[int, int, str, int]]:
    """Return the notes (ops of nemesis or harness) in `focus`, as index, time, name and start.

    A note about a period, such as the wait for a healed target, has its time at the period's end.
    """
    wanted, rows = set(focus), []
    for op in history:
        if op.index not in wanted or op.is_client:
            continue
        value = op.value if isinstance(op.value, dict) else {}
        took_s, node = value.get("took_s"), value.get("node")
        begin = op.time - int(took_s * NS_PER_S) if isinstance(took_s, int | float) else op.time
        name = f"{short(node)}: {op.f}" if isinstance(node, str) else op.f
        rows.append((op.index, op.time, name, max(0, begin)))
    return rows


def _notes(stored: StoredRun, results: Results, chosen: Selection) -> list[str]:
    record = stored.record
    notes = [note for note in (stored.note, results.note) if note]
    if record is not None and record.interrupted:
        notes.append("The run was interrupted, so only the part before the interrupt was checked.")
    if record is not None:
        notes += [f"Warning: {warning}" for warning in record.warnings[:20]]
    if not chosen.complete:
        first, last = chosen.range_ns()
        notes.append(
            f"Of {chosen.total:,} operations the {len(chosen.pairs):,} nearest to the anomaly (or "
            f"the first fault) are on this page, from {first / 1e9:.3f} s to {last / 1e9:.3f} s; "
            "plots show only these. Faults, leaders, nodes and the counts by kind are complete."
        )
    return notes


def _replay(stored: StoredRun) -> str:
    """Return a command that replays a run or, if the run is incomplete, checks it."""
    if stored.record is None or stored.foreign:
        return f"harness check {stored.folder}"
    return replay_command(stored.folder / "case.json", stored.record.environment)


def client_lanes(chosen: Selection, concurrency: int) -> dict[int, int]:
    """Assign a lane to each process.

    After an operation that ended in `info`, a client continues as a new process, whose number is
    larger by `concurrency`. Both processes share a lane if their operations do not overlap in time.
    """
    spans: dict[int, tuple[int, int]] = {}
    for pair in chosen.pairs:
        process = pair.invoke.process
        if not isinstance(process, int):
            continue
        done = pair.completion
        end = pair.invoke.time if done is None else done.time
        begin, before = spans.get(process, (pair.invoke.time, end))
        spans[process] = (begin, max(before, end))
        if pair.type is OpType.INFO and done is None:
            # an operation without completion occupies its lane to the end
            spans[process] = (begin, 2**63)
    free_at: list[int] = []
    lanes: dict[int, int] = {}
    for process in sorted(spans, key=lambda p: (spans[p][0] if p >= concurrency else -1, p)):
        begin, end = spans[process]
        wanted = lanes.get(process - concurrency)
        if wanted is None or free_at[wanted] > begin:
            wanted = next((lane for lane, free in enumerate(free_at) if free <= begin), None)
            if wanted is None or process < concurrency:
                wanted = len(free_at)
                free_at.append(0)
        free_at[wanted] = end
        lanes[process] = wanted
    return lanes
