"""Hand-written histories and run folders whose pages have known content."""

from harness.case import Case
from harness.ops import HARNESS, NEMESIS, Attempt, CheckResult, History, Op, OpType, Verdict
from results.run.page import PageReporter
from tests.support.run_folders import keep_run

MS = 1_000_000
S = 1_000_000_000


class Script:
    """A writer that builds a history line by line; `at` is in ms."""

    def __init__(self):
        self.lines = []

    def fact(self, at, f, value):
        self.lines.append((at, HARNESS, OpType.INFO, f, value, {}))
        return self

    def nemesis(self, at, f, **value):
        self.lines.append((at, NEMESIS, OpType.INFO, f, value, {}))
        return self

    def call(self, at, process, f, value=None):
        self.lines.append((at, process, OpType.INVOKE, f, value, {}))
        return self

    def done(self, at, process, kind, f, value=None, **extra):
        self.lines.append((at, process, OpType(kind), f, value, extra))
        return self

    def op(self, start, end, process, f, asked, kind, answer=None, *, node="m1", **extra):
        """Add one operation, with one RPC attempt of the same duration."""
        outcome = "ok" if kind == "ok" else "RPC: lost"
        attempts = (Attempt(node, int(start * MS), int(end * MS), outcome),)
        self.call(start, process, f, asked)
        return self.done(end, process, kind, f, answer, node=node, attempts=attempts, **extra)

    def ops(self):
        ordered = sorted(self.lines, key=lambda line: line[0])
        return [
            Op(index, int(at * MS), process, kind, f, value, **extra)
            for index, (at, process, kind, f, value, extra) in enumerate(ordered)
        ]

    def history(self):
        return History(self.ops())


def small_run():
    """Build a run of two masters: a partition, a kill, the life of a table, and a stale read."""
    script = Script()
    script.fact(0, "phase", {"phase": "setup"}).fact(100, "leader", {"node": "m1", "term": 1})
    script.fact(101, "phase", {"phase": "chaos"})
    script.op(
        200, 210, 0, "create", {"name": "t1", "nonce": "n1"}, "ok",
        {"result": "ok", "table_id": "aaaa1111", "schema_version": 0, "term": 1},
    )  # fmt: skip
    cut = {"fault": "partition-leader-1", "targets": ["m1"], "note": "cut m1 off"}
    script.nemesis(300, "partition-leader", action="inject", **cut)
    script.op(310, 900, 1, "alter", {"name": "t1", "nonce": "n2"}, "info", error="RPC: no answer")
    script.fact(500, "leader", {"node": "m2", "term": 2})
    script.op(
        600, 620, 2, "rename", {"name": "t1", "new_name": "t2", "nonce": "n3"}, "ok",
        {"result": "ok", "table_id": "aaaa1111", "schema_version": 1, "term": 2}, node="m2",
    )  # fmt: skip
    script.op(
        700, 705, 0, "get", {"name": "t1"}, "ok",
        {"result": "ok", "table_id": "aaaa1111", "schema_version": 0, "term": 1},
    )  # fmt: skip
    script.nemesis(
        800, "partition-leader", action="heal", bite={"count": 7, "unit": "frames"}, **cut
    )
    script.op(
        910, 930, 2, "delete", {"name": "t2", "nonce": "n4"}, "ok",
        {"result": "ok", "table_id": "aaaa1111", "schema_version": 1, "term": 2}, node="m2",
    )  # fmt: skip
    script.op(940, 950, 0, "get", {"name": "t9"}, "fail", None, error="NOT_FOUND: t9")
    exit_fact = {"node": "m2", "code": -9, "expected": True, "log": []}
    script.fact(1000, "node-exit", exit_fact)
    kill = {"fault": "kill-leader-1", "targets": ["m2"], "note": "killed m2"}
    script.nemesis(1000.5, "kill-leader", action="inject", **kill)
    script.op(1010, 1015, 0, "list", {}, "ok", {"tables": [["t5", "bbbb2222", 0]], "term": 1})
    script.nemesis(1500, "kill-leader", action="heal", bite={"count": None}, **kill)
    script.call(1600, 3, "list", {})
    script.fact(1700, "phase", {"phase": "final"})
    script.fact(
        1800,
        "snapshot",
        {"masters": {"m1": {"tables": [
            {"id": "aaaa1111", "name": "t2", "state": "REMOVED", "version": 1},
        ]}, "m2": {"tables": []}}},
    )  # fmt: skip
    return script.history()


def stale_read(history):
    """Return the verdict on `small_run`, whose read at 700 ms is stale."""
    wanted = [
        pair.invoke.index
        for pair in history.pairs
        if (pair.invoke.f, pair.invoke.time) in {("get", 700 * MS), ("rename", 600 * MS)}
    ]
    named = " and ".join(f"op {index}" for index in wanted)
    return CheckResult(
        "linearizable-catalog",
        Verdict.INVALID,
        "not linearizable",
        (f"No order explains {named}.", "Nothing else is wrong."),
        tuple(wanted),
    )


def write_run(store, history, results, *, name="made", case=None, logs=None, replay="harness run"):
    """Write a whole run folder; `logs` maps names of files to their contents."""
    verdict = max((result.verdict for result in results), key=lambda v: v.rank)
    path = keep_run(
        store, name, "run-1",
        case or Case(seed=7, nemeses=("partition-leader", "kill-leader")),
        history, results,
        verdict=verdict, replay=replay, wall_s=1.5, versions={"harness": "0"},
    )  # fmt: skip
    for file, text in (logs or {}).items():
        log = path / file
        log.parent.mkdir(exist_ok=True)
        log.write_text(text)
    return path


def show(page, folder):
    page.open(PageReporter().write(folder))
    page.wait_for_selector("html[data-ready]")
