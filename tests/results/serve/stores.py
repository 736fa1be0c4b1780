"""Stores to browse: small, made in milliseconds, and one with 10,000 runs for the list."""

import os

from harness.case import Case, Fault
from harness.ops import HARNESS, NEMESIS, CheckResult, History, Op, OpType, Verdict
from tests.run_folders import keep_run

S = 1_000_000_000
LONG_AGO = 1_790_000_000
FAULT = {"fault": "f", "targets": ["m1"]}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"


def history(latency_ms=2, count=20):
    """`count` operations a second apart: ok, fail and info in turn; the last stays open."""
    lines = [
        (0, HARNESS, OpType.INFO, "phase", {"phase": "warm-up"}),
        (2 * S, HARNESS, OpType.INFO, "phase", {"phase": "chaos"}),
        (
            3 * S,
            NEMESIS,
            OpType.INFO,
            "kill",
            {"action": "inject", "fault": "f", "targets": ["m1"]},
        ),
        (6 * S, NEMESIS, OpType.INFO, "kill", {"action": "heal", "fault": "f", "targets": ["m1"]}),
        (9 * S, HARNESS, OpType.INFO, "phase", {"phase": "heal-core"}),
    ]
    for number in range(count):
        start = number * S // 2 + S
        kind = (OpType.OK, OpType.FAIL, OpType.OK, OpType.INFO)[number % 4]
        f = ("get", "create")[number % 2]
        lines.append((start, number, OpType.INVOKE, f, {"n": number}))
        if number < count - 1:
            lines.append((start + latency_ms * 1_000_000 + number, number, kind, f, number))
    lines.sort(key=lambda line: line[0])
    return History(Op(index, *line) for index, line in enumerate(lines))


def add_run(
    store, name, run, *, verdict=Verdict.VALID, label=None, started="2026-11-20T10:00:00+00:00",
    made=None, results=None, finished=True, failure=None, interrupted=False, versions=None, **case,
):  # fmt: skip
    """A finished run; returns its folder."""
    the_case = Case(
        **{"seed": 1, "nemeses": ("kill-leader",), "faults": (Fault("f", "kill", S, S),), **case}
    )
    made = history() if made is None else made
    if results is None:
        results = [
            CheckResult("stats", Verdict.VALID, "enough"),
            CheckResult("lin", verdict, "why"),
        ]
    return keep_run(
        store, name, run, the_case, made, results,
        verdict=verdict, label=label, finished=finished, started=started, failure=failure,
        wall_s=1.5, simulated_s=12.0, versions=versions or {"harness": "0.1.0"},
        interrupted=interrupted,
    )  # fmt: skip


def small_store(store):
    """Seven good runs over two series, two labels and three days, and five that are broken."""
    invalid, unknown = Verdict.INVALID, Verdict.UNKNOWN
    add_run(store, "alpha", "a1", seed=1, label="v1")
    add_run(store, "alpha", "a2", seed=2, label="v1", started="2026-11-21T10:00:00+02:00")
    add_run(store, "alpha", "a3", seed=3, label="v2", verdict=invalid, bugs=("NO-LEASE",),
            started="2026-11-21T11:00:00+00:00", made=history(latency_ms=40))  # fmt: skip
    add_run(store, "alpha", "a4", seed=3, label="v2", verdict=unknown,
            started="2026-11-22T10:00:00+00:00")  # fmt: skip
    add_run(store, "beta", "b1", seed=5, nemeses=("kill-leader", "pause-leader"),
            workload="register", started="2026-11-22T11:00:00+00:00")  # fmt: skip
    add_run(store, "beta", "b2", seed=6, nemeses=("pause-leader",), verdict=invalid,
            started="2026-11-22T12:00:00+00:00")  # fmt: skip
    add_run(store, "beta", "b3", seed=7, label=HOSTILE, workload=HOSTILE, nemeses=(HOSTILE,),
            bugs=(HOSTILE,), started="2026-11-22T13:00:00+00:00",
            results=[CheckResult(HOSTILE, Verdict.VALID, HOSTILE, explanation=(HOSTILE,))],
            made=History([Op(0, 0, 0, OpType.INVOKE, HOSTILE, HOSTILE)]))  # fmt: skip
    poison(store)
    return store


def poison(store):
    """Runs that are torn, foreign, unfinished, linked out of the store, or hostile."""
    torn = add_run(store, "poison", "torn", seed=90)
    content = (torn / "history.parquet").read_bytes()
    (torn / "history.parquet").write_bytes(content[: len(content) // 2])
    (add_run(store, "poison", "no-record", seed=91) / "run.json").write_text('{"run": ')
    add_run(store, "poison", "unfinished", seed=92, finished=False)
    linked = add_run(store, "poison", "linked", seed=93)
    outside = store.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("SECRET\n")
    (linked / "secret.txt").symlink_to(outside / "secret.txt")
    (linked / "run.json").unlink()
    (linked / "run.json").symlink_to(outside / "secret.txt")
    (store / "poison" / "folder-link").symlink_to(outside)
    (store / "series-link").symlink_to(outside)
    middle = add_run(store, "poison", "rotten", seed=94)
    data = bytearray((middle / "history.parquet").read_bytes())
    data[100:400] = bytes(300)
    (middle / "history.parquet").write_bytes(data)
    for name in ("unfinished", "linked", "no-record"):  # their files alone say when they began
        os.utime(store / "poison" / name / "case.json", (LONG_AGO, LONG_AGO))
