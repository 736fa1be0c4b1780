"""Small stores for tests: plain runs, keyed runs, and every kind of poison."""

import contextlib
import random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from harness.case import Case
from harness.imported import imported_case
from harness.ops import HARNESS, History, Op, OpType
from results.facts.schema import schema
from results.questions.engines import DuckEngine
from tests.run_folders import keep_run

REGISTER = ("linearizable-register", "liveness", "crash", "stats")


def register_ops(seed, *, stale=False, count=12, key=None):
    """A few clients on one register: valid, or ended by a read of what was never there."""
    ops = []
    state = None

    def line(process, kind, f, value):
        value = value if key is None else [key, value]
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
    """One run in a store, as `harness run` leaves it."""
    return keep_run(
        store, name, run, Case(seed=seed, **{"workload": "register", **case}), history,
        label=label, finished=finished,
    )  # fmt: skip


def put_keyed(store, name, run, history):
    """One run over independent keys, as `harness import` leaves it."""
    case = imported_case("cas-register", independent=True)
    return keep_run(store, name, run, case, history, environment="imported")


def keyed_history(keys, *, stale=(), giant=None, giant_ops=0):
    """Registers by key; those of `stale` are not linearizable, `giant` is hopeless."""
    ops = []
    for place, key in enumerate(keys):
        for op in register_ops(place, stale=key in stale, key=key):
            ops += [msgspec.structs.replace(op, process=op.process + 10 * place)]
    if giant is not None:
        ops += hopeless(giant, giant_ops, process=10_000)
    note = Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "chaos"})
    return History(
        msgspec.structs.replace(op, index=n, time=n * 1_000) for n, op in enumerate([note, *ops])
    )


def hopeless(key, count, *, process, values=8, seed=2):
    """Compare-and-sets that were all open at once: an order of them is a path over all edges."""
    rng = random.Random(seed)
    ops = []

    def line(who, kind, f, value):
        ops.append(Op(0, 0, who, kind, f, value if key is None else [key, value]))

    line(process + count, OpType.INVOKE, "write", {"value": 0})
    line(process + count, OpType.OK, "write", {})
    for n in range(count):
        edge = {"old": rng.randrange(values), "new": rng.randrange(values)}
        line(process + n, OpType.INVOKE, "cas", edge)
    for n in range(count):
        line(process + n, OpType.OK, "cas", {})
    return ops


def numbered(ops):
    """Ops as a history of their own."""
    return History(msgspec.structs.replace(op, index=n, time=n * 1_000) for n, op in enumerate(ops))


def foreign_parquet(path):
    """A Parquet file that is no history."""
    pq.write_table(pa.table({"a": [1, 2, 3]}), path)


def rows_of(checked, *, without=("wall_ns", "cpu_ns")):
    """The sorted rows of all tables, times left out."""
    found = {}
    for name in checked.tables:
        table = table_in(checked, name)
        names = [column for column in table.column_names if column not in without]
        found[name] = sorted(map(repr, table.select(names).to_pylist()))
    return found


def table_in(checked, name):
    """One table of what was found: its columns, and the rows that count; files may have more."""
    with contextlib.closing(DuckEngine()) as engine:
        engine.register(name, checked.tables[name], checked.counting.get(name, "true"))
        return engine.sql(f"SELECT * FROM {name}").cast(schema(name))


def verdicts(checked):
    """(run, checker, key) -> verdict."""
    table = table_in(checked, "verdicts")
    return {(row["run"], row["checker"], row["key"]): row["verdict"] for row in table.to_pylist()}


def store_with_a_killer(folder):
    """Three sound runs, and one whose seed makes the checker `deadly` kill its worker."""
    for n in range(3):
        put_run(folder, "n", f"r{n}", History(register_ops(n)), seed=n)
    put_run(folder, "n", "killer", History(register_ops(1, count=9)), seed=666)
    return folder
