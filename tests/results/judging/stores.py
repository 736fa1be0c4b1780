"""Small stores for tests, and the results of reports on them."""

import contextlib
import random
from typing import NamedTuple

import msgspec
import pyarrow as pa

from harness.case import Case, imported_case
from harness.ops import History, Op, OpType
from results.facts.schema import schema
from results.judging.budgets import Budget
from results.judging.pipeline import Checked, check
from results.judging.report_runs import ReportRuns
from results.lake.log.lake import Lake
from results.lake.transfer.store_lake import lake_of_store
from results.questions.engines import DuckEngine
from results.report.addresses import short
from results.report.report import NAME_OF_RUN, register
from tests.support.run_folders import keep_run

DEFAULT = Budget()
REGISTER = ("linearizable-register", "liveness", "crash", "stats")


def register_ops(seed, *, stale=False, count=12):
    """Build ops of a few clients on one register. If `stale`, the last read is impossible."""
    ops = []
    state = None

    def line(process, kind, f, value):
        ops.append(Op(len(ops), len(ops) * 1_000, process, kind, f, value))

    for n in range(count):
        process = n % 3
        if (n + seed) % 2:
            line(process, OpType.INVOKE, "write", {"value": n})
            line(process, OpType.OK, "write", {})
            state = n
        else:
            line(process, OpType.INVOKE, "read", {})
            line(process, OpType.OK, "read", {"value": state})
    if stale:
        line(0, OpType.INVOKE, "read", {})
        line(0, OpType.OK, "read", {"value": 777})
    return ops


def put_run(store, name, run, history, *, seed=1, label=None, finished=True, **case):
    """Put one run into a store, in the form in which `harness run` keeps it."""
    return keep_run(
        store, name, run, Case(seed=seed, **{"workload": "register", **case}), history,
        label=label, finished=finished,
    )  # fmt: skip


def plain_store(store, runs=3):
    """Fill a store with runs of registers, of which the second is invalid."""
    for n in range(runs):
        put_run(store, "n", f"r{n}", History(register_ops(n, stale=n == 1)), seed=n)
    return store


def put_keyed(store, name, run, history):
    """Put one run over independent keys into a store, as `harness import` does."""
    case = imported_case("cas-register", independent=True)
    return keep_run(store, name, run, case, history, environment="imported")


def hopeless(count, *, values=8, seed=2):
    """Build concurrent compare-and-sets that no budget can decide: their orders are paths through
    all edges of a graph.
    """
    rng = random.Random(seed)
    ops = []

    def line(who, kind, f, value):
        ops.append(Op(0, 0, who, kind, f, value))

    line(count, OpType.INVOKE, "write", {"value": 0})
    line(count, OpType.OK, "write", {})
    for n in range(count):
        edge = {"old": rng.randrange(values), "new": rng.randrange(values)}
        line(n, OpType.INVOKE, "cas", edge)
    for n in range(count):
        line(n, OpType.OK, "cas", {})
    return ops


def numbered(ops):
    """Number ops as if they were a whole history."""
    return History(msgspec.structs.replace(op, index=n, time=n * 1_000) for n, op in enumerate(ops))


TIMES = ("wall_ns", "cpu_ns")


class Found(NamedTuple):
    """The results of a report on a store: its summary, and its tables, with runs by name."""

    checked: Checked
    tables: dict[str, pa.Table]

    def rows(self, *, without=TIMES):
        return {
            name: sorted(
                map(repr, table.drop_columns({*without} & {*table.column_names}).to_pylist())
            )
            for name, table in self.tables.items()
        }

    def verdict_rows(self):
        rows = self.tables["verdicts"].to_pylist()
        return {(row["run"], row["checker"], row["key"]): row for row in rows}

    def verdicts(self):
        return {place: row["verdict"] for place, row in self.verdict_rows().items()}

    def problems(self):
        return {(short(problem.run), problem.kind) for problem in self.checked.problems}


def judge_store(
    store, *, budget=DEFAULT, second_pass=True, checkers=None, facts=True, label=None, **options
):
    """Update the lake of a store and judge its new runs. Problems of the ingest are omitted."""
    uri = lake_of_store(store, may_be_empty=True).uri
    return judge_lake(
        uri, budget=budget, second_pass=second_pass, checkers=checkers, facts=facts, label=label,
        **options,
    )  # fmt: skip


def judge_lake(
    uri, *, budget=DEFAULT, second_pass=True, executor="inline", jobs=None, again=False,
    progress=None, **given,
):  # fmt: skip
    snapshot = Lake.open(str(uri)).snapshot()
    budgets = (budget, budget.larger()) if second_pass else (budget,)
    with contextlib.closing(ReportRuns(snapshot, budgets=budgets, slots=2, **given)) as runs:
        checked = check(runs, executor=executor, jobs=jobs, again=again, progress=progress)
        return Found(checked, tables_of(checked))


def tables_of(checked):
    """Return the tables with runs by name, and only their valid rows."""
    with contextlib.closing(DuckEngine()) as engine:
        register(engine, checked, run=NAME_OF_RUN)
        return {
            name: engine.sql(f"SELECT * FROM {name}").cast(schema(name)) for name in checked.tables
        }


def store_with_a_killer(folder):
    """Build a store of three sound runs and of one run at which `deadly` kills its worker."""
    for n in range(3):
        put_run(folder, "n", f"r{n}", History(register_ops(n)), seed=n)
    put_run(folder, "n", "killer", History(register_ops(1, count=9)), seed=666)
    return folder
