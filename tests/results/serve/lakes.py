"""A store whose runs can all be told alike in a lake, and that lake."""

import contextlib
import io
import re

from harness.ops import CheckResult, Verdict
from harness.signatures import Failure
from results.lake.transfer.ingest_verb import main as ingest_verb
from tests.results.serve.stores import HOSTILE, add_run, history

DIGITS = re.compile(r"(@|%40)[0-9a-f]{12}\b")
LOG = "m1 was alone"


def failing(signature, verdict=Verdict.INVALID):
    """What a run records that failed like that."""
    checker = signature.split(" · ")[0]
    found = CheckResult(checker, verdict, "why it is so", ("It saw op 4.",), (4,))
    return {
        "verdict": verdict,
        "failure": Failure(checker, "why it is so", signature),
        "results": [CheckResult("stats", Verdict.VALID, "enough"), found],
    }


def make_store(store):
    """Eleven finished runs: labels, days, versions, bugs, failures, a hostile one."""
    stale, exits = "lin · stale-read · cut · get", "crash · exit · kill"
    one, two = {"code": "aaaa", "harness": "1"}, {"commit": "bbbb", "code": "c", "harness": "2"}
    add = add_run
    add(store, "alpha", "a1", seed=1, label="v1", versions=one)
    add(store, "alpha", "a2", seed=2, label="v1", versions=one, started=_at(21, "10:00:00+02:00"))
    add(
        store,
        "alpha",
        "a3",
        seed=3,
        label="v2",
        versions=two,
        bugs=("NO-LEASE",),
        started=_at(21, "11:00:00+00:00"),
        made=history(latency_ms=40),
        **failing(stale),
    )
    add(
        store,
        "alpha",
        "a4",
        seed=3,
        label="v2",
        versions=two,
        started=_at(22, "10:00:00.125000+00:00"),
        **failing("lin", Verdict.UNKNOWN),
    )
    add(store, "alpha", "a5", seed=4, label="v2", versions=two, started=_at(23), **failing(stale))
    add(store, "alpha", "a6", seed=1, label="v2", versions=two, started=_at(23, "09:00:00+00:00"))
    add(
        store,
        "beta",
        "b1",
        seed=5,
        nemeses=("kill-leader", "pause-leader"),
        workload="register",
        started=_at(22, "11:00:00+00:00"),
    )
    add(
        store,
        "beta",
        "b2",
        seed=6,
        nemeses=("pause-leader",),
        started=_at(22, "12:00:00+00:00"),
        **failing(exits),
    )
    add(
        store,
        "beta",
        "b3",
        seed=7,
        label=HOSTILE,
        nemeses=(HOSTILE,),
        bugs=(HOSTILE,),
        started=_at(22, "13:00:00+00:00"),
    )
    add(
        store,
        "beta",
        "b4",
        seed=8,
        target="etcd",
        interrupted=True,
        started=_at(24),
        **failing(exits),
    )
    folder = add(store, "beta", "b5", seed=2**62 + 1, profile="modern", label="v1", started=_at(24),
                 versions=two, **failing("lin · " + "x" * 300))  # fmt: skip
    (folder / "logs").mkdir()
    (folder / "logs" / "m1.log").write_text(LOG)
    (folder / "report.html").write_text("<h1>kept</h1>")
    return store


def _at(day, time="10:00:00+00:00"):
    return f"2026-11-{day}T{time}"


def ingested(store, lake, *words):
    """The lake of a store; nothing is said."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ingest_verb([str(store), "--lake", str(lake), *words])
    return lake


def as_in_store(text):
    """What a page of a lake says, with the ids that a store has."""
    return DIGITS.sub("", text)
