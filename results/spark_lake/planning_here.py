"""The plan of `results.spark_lake.planning`, made on the driver where there are few runs.

Compiling, starting and gathering four queries of Spark's costs seconds of CPU, going over a few
thousand narrow rows a tenth of one. So up to a bound the rows that a plan needs are read here, and
what comes out is the same to the last task. Beyond it nothing per run happens on the driver.
"""

from __future__ import annotations

import collections
import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from results.lake.files import MAIN, PARTITION
from results.lake.trouble import troubles
from results.spark_lake.planning import (
    AGAIN_FACTOR,
    EVER,
    NS_A_LINE,
    Share,
    Todo,
    Wish,
    task_cost,
)
from results.stored import LIMITED

if TYPE_CHECKING:
    import pyarrow as pa

    from results.lake.snapshot import Snapshot

__all__ = ["KNOWN", "are_few", "kinds_of", "known_here", "narrow_here", "plan_here"]

RUNS_MAX: Final = 20_000
"""Of a plan here: it takes half a second of so many."""
KNOWN_MAX: Final = 100_000
"""Rows of the results' `runs`: of one run several, where it was judged bit by bit."""
KNOWN: Final = ("run", "run_batch", "judged_at", "results", "marks")
NARROW: Final = ("target", "label", "day", "run", "batch", "lines", "workload", "case", "finished")


class _Case(msgspec.Struct):
    """Of a case, what says which results its run wants."""

    checkers: Any = None


def are_few(runs: Snapshot, results: Snapshot) -> bool:
    """Whether the driver may go over them; either snapshot may be narrowed to a label."""
    return (
        sum(file.rows for file in runs.files(MAIN)) <= RUNS_MAX
        and sum(file.rows for file in results.files(MAIN)) <= KNOWN_MAX
    )


def known_here(results: Snapshot) -> pa.Table:
    """The rows of the results' `runs`, as far as a plan needs them."""
    return _read(results, KNOWN)


def _read(snapshot: Snapshot, columns: Sequence[str]) -> pa.Table:
    with troubles(snapshot.place.uri_of(MAIN)):
        return snapshot.dataset(MAIN).to_table([*columns])


def narrow_here(snapshot: Snapshot) -> pa.Table:
    """What a plan has to know of each run, as the query `NARROW` of the driver says it."""
    import pyarrow as pa

    rows = _read(snapshot, NARROW)
    others = [_others(text) for text in rows["case"].to_pylist()]
    workloads = rows["workload"].to_pylist()
    kinds = [f"{name} {text}" for name, text in zip(workloads, others, strict=True)]
    return (
        rows.drop_columns(["case"])
        .append_column("others", pa.array(others, pa.string()))
        .append_column("kind", pa.array(kinds, pa.string()))
    )


def _others(case: str | None) -> str:
    """The checkers that a case names besides its workload's, as JSON."""
    try:
        found = msgspec.json.decode(case or "{}", type=_Case).checkers
    except (msgspec.DecodeError, msgspec.ValidationError):
        found = None
    return "[]" if found is None else msgspec.json.encode(found).decode()


def kinds_of(narrow: pa.Table) -> list[dict[str, Any]]:
    """The kinds of runs and how many there are of each, as the query `KINDS` says it."""
    names = ("kind", "workload", "others")
    columns = (narrow[name].to_pylist() for name in (*names, "finished"))
    runs: collections.Counter[tuple[str, ...]] = collections.Counter()
    unfinished: collections.Counter[tuple[str, ...]] = collections.Counter()
    for *kind, finished in zip(*columns, strict=True):
        runs[tuple(kind)] += 1
        unfinished[tuple(kind)] += finished is False
    return [
        {**dict(zip(names, kind, strict=True)), "runs": runs[kind], "unfinished": unfinished[kind]}
        for kind in sorted(runs)
    ]


class _Run(NamedTuple):
    """A run that misses something."""

    row: dict[str, Any]
    lines: int
    again: int
    cost: int
    missing: str


def plan_here(
    spark: Any,
    runs: pa.Table,
    known: pa.Table,
    wishes: Sequence[Wish],
    *,
    slots: Callable[[], int],
    since: str = "",
) -> Todo:
    """As `plan_tasks`, of tables that lie here: `narrow_here` and `known_here`."""
    found = _found(known, dt.datetime.fromisoformat(since or EVER).replace(tzinfo=dt.UTC))
    wanted: dict[str, list[Wish]] = {}
    for wish in wishes:
        wanted.setdefault(wish.kind, []).append(wish)
    todo: list[_Run] = []
    sums: collections.Counter[str] = collections.Counter()
    sums["listed"] = sum(map(len, known["results"].to_pylist()))
    for row in runs.to_pylist():
        own = wanted.get(row["kind"])
        if own is None:
            continue
        there = found.get((row["run"], row["batch"]), {})
        sums["there"] += len({wish.checker for wish in own if wish.result_id in there})
        sums["unsettled"] += sum(mark != "" for marks in there.values() for mark in marks)
        missing = [wish for wish in own if _lacks(wish, there)]
        if missing:
            run = _run(row, missing)
            todo.append(run)
            sums.update(runs=1, results=len(missing), again=run.again, cost=run.cost)
    names = ("runs", "results", "again", "cost", "listed", "there", "unsettled")
    totals = {name: sums[name] for name in names}
    if not todo:
        return Todo(frame=None, tasks=0, shares=(), close=_nothing, **totals)
    placed = _placed(todo, task_cost(sums["cost"], slots()))
    shares = _shares(placed)
    frame = spark.createDataFrame(_table(placed, runs.schema))
    return Todo(frame=frame, tasks=shares[-1].task + 1, shares=shares, close=_nothing, **totals)


def _nothing() -> None:
    """No view was made."""


def _found(known: pa.Table, since: dt.datetime) -> dict[tuple[str, str], dict[str, list[str]]]:
    """The marks of each result that counts, by its id, by run and batch."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in known.to_pylist():
        own = found.setdefault((row["run"], row["run_batch"]), {})
        late = row["judged_at"] >= since
        for result_id, mark in zip(row["results"], row["marks"], strict=True):
            if late or mark == "":
                own.setdefault(result_id, []).append(mark)
    return found


def _lacks(wish: Wish, there: dict[str, list[str]]) -> bool:
    """Whether it is wanted and not there."""
    if wish.result_id in there:
        return False
    if wish.before is None:
        return True
    return wish.before in there and all(mark == LIMITED for mark in there[wish.before])


def _run(row: dict[str, Any], missing: Sequence[Wish]) -> _Run:
    lines = max(row["lines"] or 1, 1)
    again = sum(wish.level > 1 for wish in missing)
    cells = sorted(f"{wish.level} {wish.checker} {wish.result_id}" for wish in missing)
    cost = lines * (1 + len(missing) + AGAIN_FACTOR * again) * NS_A_LINE
    return _Run(row, lines, again, cost, "\n".join(cells))


def _placed(todo: Sequence[_Run], size: int) -> list[tuple[int, _Run]]:
    """The runs with their tasks, by task and then in the order in which their rows lie."""
    groups: dict[tuple[int, str], list[_Run]] = {}
    total = 0
    for run in sorted(todo, key=_place):
        total += run.cost if run.cost < size else 0
        alone = "" if run.cost < size and run.again == 0 else run.row["run"]
        groups.setdefault((total // size, alone), []).append(run)
    costs = {key: sum(run.cost for run in own) for key, own in groups.items()}
    ordered = sorted(groups, key=lambda key: (-costs[key], key))
    return [(task, run) for task, key in enumerate(ordered) for run in groups[key]]


def _place(run: _Run) -> tuple[Any, ...]:
    """Null comes first."""
    columns = (*PARTITION, "run")
    return tuple((run.row[name] is not None, run.row[name] or "") for name in columns)


def _shares(placed: Sequence[tuple[int, _Run]]) -> tuple[Share, ...]:
    groups: dict[tuple[int, tuple[Any, ...]], list[_Run]] = {}
    for task, run in placed:
        partition = tuple(run.row[name] for name in PARTITION)
        groups.setdefault((task, partition), []).append(run)
    shares = [
        Share(
            task,
            partition,
            min(run.row["run"] for run in own),
            max(run.row["run"] for run in own),
            len(own),
            sum(run.cost for run in own),
        )
        for (task, partition), own in groups.items()
    ]
    return tuple(sorted(shares, key=lambda share: (share.task, share.first_run)))


def _table(placed: Sequence[tuple[int, _Run]], kinds: pa.Schema) -> pa.Table:
    """The rows of `Todo.frame`."""
    import pyarrow as pa

    runs = [run for _, run in placed]
    own = {
        name: pa.array([run.row[name] for run in runs], kinds.field(name).type)
        for name in (*PARTITION, "run", "batch")
    }
    return pa.table(
        {
            "task": pa.array([task for task, _ in placed], pa.int32()),
            **own,
            "lines": pa.array([run.lines for run in runs], pa.int64()),
            "cost": pa.array([run.cost for run in runs], pa.int64()),
            "missing": pa.array([run.missing for run in runs], pa.string()),
        }
    )
