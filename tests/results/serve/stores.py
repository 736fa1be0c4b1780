"""Small stores to browse, also with broken runs."""

import os

from harness.case import Case, Fault
from harness.ops import HARNESS, NEMESIS, CheckResult, History, Op, OpType, Verdict
from harness.verdict.signature import Failure
from tests.support.run_folders import keep_run

S = 1_000_000_000
LONG_AGO = 1_790_000_000
LATE = "11:00:00+00:00"
LOG = "m1 was alone"
FAULT = {"fault": "f", "targets": ["m1"]}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"


def history(latency_ms=2, count=20):
    """Build `count` operations, one per second: ok, fail and info in turn; the last stays open."""
    lines = [
        (0, HARNESS, OpType.INFO, "phase", {"phase": "warm-up"}),
        (2 * S, HARNESS, OpType.INFO, "phase", {"phase": "chaos"}),
        (3 * S, NEMESIS, OpType.INFO, "kill", {"action": "inject", **FAULT}),
        (6 * S, NEMESIS, OpType.INFO, "kill", {"action": "heal", **FAULT}),
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


def failing(signature, verdict=Verdict.INVALID):
    """Build the record of a run that failed in this way."""
    checker = signature.split(" · ")[0]
    result = CheckResult(checker, verdict, "why it is so", ("It saw op 4.",), (4,))
    return {
        "verdict": verdict,
        "failure": Failure(checker, "why it is so", signature),
        "results": [CheckResult("stats", Verdict.VALID, "enough"), result],
    }


def _at(day, time="10:00:00+00:00"):
    return {"started": f"2026-11-{day}T{time}"}


V1, V2 = {"label": "v1"}, {"label": "v2"}
BOTH = ("kill-leader", "pause-leader")
BUGGY = {"bugs": ("NO-LEASE",), "made": history(latency_ms=40), **_at(21, LATE)}
HOSTILE_RUN = {
    "label": HOSTILE, "nemeses": (HOSTILE,), "bugs": (HOSTILE,), **_at(22, "13:00:00+00:00"),
}  # fmt: skip


def small_store(store):
    """Build seven good runs in two series, two labels and three days, and five broken runs."""
    invalid, unknown = {"verdict": Verdict.INVALID}, {"verdict": Verdict.UNKNOWN}
    hostile = {
        "results": [CheckResult(HOSTILE, Verdict.VALID, HOSTILE, explanation=(HOSTILE,))],
        "made": History([Op(0, 0, 0, OpType.INVOKE, HOSTILE, HOSTILE)]),
    }
    for run, fields in {
        "alpha/a1": {"seed": 1, **V1},
        "alpha/a2": {"seed": 2, **V1, **_at(21, "10:00:00+02:00")},
        "alpha/a3": {"seed": 3, **V2, **invalid, **BUGGY},
        "alpha/a4": {"seed": 3, **V2, **unknown, **_at(22)},
        "beta/b1": {"seed": 5, "nemeses": BOTH, "workload": "register", **_at(22, LATE)},
        "beta/b2": {"seed": 6, "nemeses": BOTH[1:], **invalid, **_at(22, "12:00:00+00:00")},
        "beta/b3": {"seed": 7, "workload": HOSTILE, **HOSTILE_RUN, **hostile},
    }.items():
        add_run(store, *run.split("/"), **fields)
    poison(store)
    return store


def make_store(store):
    """Build eleven finished runs with labels, days, versions, bugs, failures, and hostile text."""
    stale, exits = failing("lin · stale-read · cut · get"), failing("crash · exit · kill")
    unknown, long = failing("lin", Verdict.UNKNOWN), failing("lin · " + "x" * 300)
    one = {"versions": {"code": "aaaa", "harness": "1"}}
    two = {"versions": {"commit": "bbbb", "code": "c", "harness": "2"}}
    odd = {"seed": 2**62 + 1, "profile": "modern"}
    for run, fields in {
        "alpha/a1": {"seed": 1, **V1, **one},
        "alpha/a2": {"seed": 2, **V1, **one, **_at(21, "10:00:00+02:00")},
        "alpha/a3": {"seed": 3, **V2, **two, **BUGGY, **stale},
        "alpha/a4": {"seed": 3, **V2, **two, **unknown, **_at(22, "10:00:00.125000+00:00")},
        "alpha/a5": {"seed": 4, **V2, **two, **stale, **_at(23)},
        "alpha/a6": {"seed": 1, **V2, **two, **_at(23, "09:00:00+00:00")},
        "beta/b1": {"seed": 5, "nemeses": BOTH, "workload": "register", **_at(22, LATE)},
        "beta/b2": {"seed": 6, "nemeses": BOTH[1:], **exits, **_at(22, "12:00:00+00:00")},
        "beta/b3": {"seed": 7, **HOSTILE_RUN},
        "beta/b4": {"seed": 8, "target": "etcd", "interrupted": True, **exits, **_at(24)},
        "beta/b5": {**odd, **V1, **two, **long, **_at(24)},
    }.items():
        folder = add_run(store, *run.split("/"), **fields)
    (folder / "logs").mkdir()
    (folder / "logs" / "m1.log").write_text(LOG)
    (folder / "report.html").write_text("<h1>kept</h1>")
    return store


def poison(store):
    """Add runs that are torn, foreign, unfinished, linked out of the store, or hostile."""
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
    # only the files of such runs show when the runs began
    for name in ("unfinished", "linked", "no-record"):
        os.utime(store / "poison" / name / "case.json", (LONG_AGO, LONG_AGO))
