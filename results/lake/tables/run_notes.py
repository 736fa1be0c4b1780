"""Reads the notes of some runs. Notes are ops of the nemesis and the harness.

Other notes are not decoded, because a snapshot of the target's state is a hundred times as large as
all other notes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.ops import HARNESS, NEMESIS, Attempt, History, Op, OpType
from harness.timeline import Fault
from results.facts.intervals import Ints
from results.facts.timeline import Timeline, whole_of

_NEMESIS: Final = -1
_ACTORS: Final = {_NEMESIS: NEMESIS, -2: HARNESS}
_WANTED: Final = frozenset({"phase", "leader", "interrupted", "node-exit", "memory", "usage"})
_TYPES: Final = {kind.value: kind for kind in OpType}
_SOME: Final = (Attempt("", 0, 0, ""),)
"""A placeholder for the attempts of a note. Only their presence matters."""
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class RunNotes:
    """Decoded notes of one run (`ops`), and their positions among all of its notes (`places`)."""

    def __init__(self, ops: Sequence[Op], places: Sequence[int], lines: int, end_ns: int) -> None:
        self.lines = lines
        self.end_ns = end_ns
        self.history = History(ops)
        self.timeline = Timeline(self.history, end_ns)
        self._places = {op.index: place for op, place in zip(ops, places, strict=True)}
        self.in_faults = [
            self._places[op.index]
            for fault in self.timeline.faults
            if _is_plain(fault)
            for op in (fault.begin, fault.heal)
            if op is not None
        ]

    def fault_rows(self) -> list[tuple[Any, ...]]:
        """Make the rows of `faults`. Ops that such a row cannot restore also get into `events`."""
        rows: list[tuple[Any, ...]] = []
        for fault in self.timeline.faults:
            bite = fault.bite
            heal = None if fault.heal is None else fault.heal.value
            rows.append(
                (
                    fault.id,
                    fault.nemesis,
                    fault.kind,
                    list(fault.targets),
                    fault.start,
                    fault.end,
                    None if bite is None else whole_of(bite.get("count")),
                    _note(fault.begin.value),
                    fault.begin.index,
                    _rest(fault.begin.value, "fault", "action", "kind", "targets", "note"),
                    None if fault.heal is None else fault.heal.index,
                    None if heal is None else _rest(heal, "fault", "action"),
                )
            )
        return rows


def _note(value: Any) -> str | None:
    note = value.get("note")
    return note if isinstance(note, str) else None


def _rest(value: Any, *told: str) -> str | None:
    rest = {name: field for name, field in value.items() if name not in told}
    return _encode(rest).decode() if rest else None


def _is_plain(fault: Fault) -> bool:
    """Whether a row of `faults` is enough to restore both ops of the fault."""
    begin, heal = fault.begin, fault.heal
    value = begin.value
    texts = all(type(value.get(name)) is str for name in ("fault", "kind", "note"))
    targets = value.get("targets")
    plain = (
        texts
        and type(targets) is list
        and all(type(name) is str for name in targets)
        and _is_bare(begin)
        and bool(begin.f and value["kind"])
    )
    if heal is None:
        return plain
    return plain and _is_bare(heal) and heal.f == begin.f and heal.value["fault"] == value["fault"]


def _is_bare(op: Op) -> bool:
    return (
        op.type is OpType.INFO
        and op.process == NEMESIS
        and op.error is None
        and op.node is None
        and not op.attempts
    )


def notes_of(lines: pa.Table, at: Ints, run: Ints, ends_ns: Sequence[int]) -> list[RunNotes]:
    """Decode the needed notes of each run. `at` has the line of each note, `run` its run."""
    kinds = lines.select(["process", "f"]).take(pa.array(at))
    wanted = pc.or_(
        pc.equal(kinds.column("process"), _NEMESIS),
        pc.is_in(kinds.column("f"), value_set=pa.array(sorted(_WANTED))),
    ).to_numpy()
    chosen = np.flatnonzero(wanted)
    taken = lines.take(pa.array(at[chosen]))
    names = ("index", "time", "process", "type", "f", "value", "error", "node")
    columns = [taken.column(name).to_pylist() for name in names]
    has_attempts = pc.list_value_length(taken.column("attempts")).to_numpy() > 0
    decode = msgspec.json.Decoder().decode
    bounds = np.searchsorted(run, np.arange(len(ends_ns) + 1)).tolist()
    ops: list[list[Op]] = [[] for _ in ends_ns]
    places: list[list[int]] = [[] for _ in ends_ns]
    for place, number, *fields, odd in zip(
        chosen.tolist(), run[chosen].tolist(), *columns, has_attempts.tolist(), strict=True
    ):
        index, time, process, kind, f, value, error, node = fields
        actor = _ACTORS.get(process, process)
        op = Op(index, time, actor, _TYPES[kind], f, decode(value), error, node, _SOME * odd)
        ops[number].append(op)
        places[number].append(place - bounds[number])
    return [
        RunNotes(decoded, where, bounds[number + 1] - bounds[number], ends_ns[number])
        for number, (decoded, where) in enumerate(zip(ops, places, strict=True))
    ]


def situations(noted: Sequence[RunNotes], run: Ints, times: Ints) -> tuple[pa.Array, pa.Array]:
    """Return phase and active nemeses at each time. `run` has the run of each time, in order."""
    names: dict[str, int] = {}
    phases = np.zeros(len(run), np.int32)
    active = np.zeros(len(run), np.int32)
    ends = np.searchsorted(run, np.arange(len(noted) + 1))
    for number, notes in enumerate(noted):
        span = slice(int(ends[number]), int(ends[number + 1]))
        look = notes.timeline
        numbers = look.phase_numbers(times[span])
        codes = [names.setdefault(look.phase_name(n), len(names)) for n in range(-1, look.phases)]
        phases[span] = np.array(codes, np.int32)[numbers + 1]
        codes = [names.setdefault(name, len(names)) for name in look.sets]
        active[span] = np.array(codes, np.int32)[look.numbers(times[span])]
    texts = pa.array([*names], pa.string())
    return texts.take(pa.array(phases)), texts.take(pa.array(active))
