"""Observes one run: counts per stretch of time, durations, faults and verdicts.

Observations come from clients and from the harness, which work in the same way for every target.
Only the phases under load count.

* **Counts** are trials and hits per *block*, a stretch of the run as long as the case's interval
  between faults. Blocks are the units of the tests, since operations of one outage are not
  independent.
* **Times** are lists of durations in ns. A *failover* lasts from a fault to the first acknowledged
  change that was invoked after the fault, and a *recovery* from a heal to the next acknowledged
  change. An *election* lasts from a fault to the next new leader.
* **Requests** are pairs of a request and its answer, if the case lists its operations and plans no
  faults.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import HistoryError, clipped
from harness.ops import NEMESIS, NS_PER_S, CheckResult, History, OpType, Pair, Verdict, error_code
from harness.permits import permitted_of
from harness.store import StoredRun, load_run
from harness.timeline import Fault, faults_of, phases_of
from harness.trials.recorded import recorded_ops
from harness.vocabularies.kinds import READS, kind_of
from results.facts.extraction import outages_by_kind
from results.facts.operations import is_no, of_history
from results.facts.timeline import Timeline, field_of

LOAD: Final = ("warm-up", "chaos")
"""The phases in which the workload runs."""
BLOCKS_MAX: Final = 1000
SAMPLE_CHARS_MAX: Final = 200
REQUEST_CHARS_MAX: Final = 120
NEVER_SENT: Final = "never sent"
"""The answer to a request that the run had no time to send."""
OUTCOME, ANSWER, MESSAGE = "outcome", "answer", "message"
FAILOVER, ELECTION, RECOVERY, OUTAGE, LATENCY = (
    "failover", "election", "recovery", "outage", "latency",
)  # fmt: skip


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of one run.

    `trials` maps each base, such as `outcome/create`, to its number of trials in each block. `hits`
    maps each name, such as `outcome/create/ok`, to its number of hits in each block.
    """

    run: str
    seed: int
    verdict: Verdict
    checkers: dict[str, Verdict]
    permitted: dict[str, int]
    trials: dict[str, dict[int, int]]
    hits: dict[str, dict[int, int]]
    samples: dict[str, str]  # the first text of each message, by name
    times: dict[str, list[int]]
    elections: list[int]  # changes of the leader, per block
    asked: bool  # whether the harness polled for leaders every second, and so saw elections late
    faults: dict[str, tuple[int, int]]  # per nemesis: the faults that hit, and all faults
    requests: list[tuple[str, str]] | None  # each request and its answer, in words


class _Results(msgspec.Struct):
    checkers: tuple[CheckResult, ...] = ()


def observe(folder: Path) -> Observed:
    """Observe a stored run; raise `HistoryError` if it has no verdict of its own."""
    run = load_run(folder)
    if run.record is None or run.foreign:
        raise HistoryError(f"{str(folder)!r} has no verdict: {run.note}")
    return observed(run, run.record.verdict, _results_in(folder))


def _results_in(folder: Path) -> tuple[CheckResult, ...]:
    path = folder / "results.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Results).checkers
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(f"{str(path)!r} cannot be read: {error}") from error


def observed(run: StoredRun, verdict: Verdict, results: tuple[CheckResult, ...]) -> Observed:
    """Observe a run. This is a pure function of its case, its history and its results."""
    counts = _Counts(run.case, run.history)
    faults = faults_of(run.history.of_process(NEMESIS), most=None)
    return Observed(
        run=str(run.folder),
        seed=run.case.seed,
        verdict=verdict,
        checkers={result.checker: result.verdict for result in results},
        permitted=permitted_of(results),
        trials={base: dict(sorted(blocks.items())) for base, blocks in counts.trials.items()},
        hits={name: dict(sorted(blocks.items())) for name, blocks in counts.hits.items()},
        samples=counts.samples,
        times=_times(run.history, faults),
        elections=counts.elections,
        asked=any(field_of(op, "asked") for op in run.history.facts("leader")),
        faults=_faults(faults),
        requests=_requests(run.case, run.history),
    )


# --- counts --------------------------------------------------------------------------------------


class _Counts:
    """Hits and trials by block, from the operations that were invoked under load."""

    def __init__(self, case: Case, history: History) -> None:
        self.trials: dict[str, Counter[int]] = {}
        self.hits: dict[str, Counter[int]] = {}
        self.samples: dict[str, str] = {}
        begin_ns, end_ns = _load(history)
        length_ns = int(case.interval_s * NS_PER_S)
        for pair in history.pairs:
            if begin_ns <= pair.invoke.time < end_ns:
                block = min(BLOCKS_MAX - 1, (pair.invoke.time - begin_ns) // length_ns)
                self._count(pair, block)
        blocks = range(min(BLOCKS_MAX, max(0, end_ns - begin_ns) // length_ns))
        leaders = Counter(
            (op.time - begin_ns) // length_ns
            for op in history.leaders()[1:]
            if begin_ns <= op.time < end_ns
        )
        self.elections = [leaders[block] for block in blocks]

    def _count(self, pair: Pair, block: int) -> None:
        kind = kind_of(pair.invoke)
        self._hit(OUTCOME, kind, block, [outcome_of(pair)])
        for each in answers_of(pair):
            self._hit(ANSWER, kind, block, [each])
        for attempt in () if pair.completion is None else pair.completion.attempts:
            code = error_code(attempt.outcome)
            self._hit(MESSAGE, kind, block, [code])
            self.samples.setdefault(
                f"{MESSAGE}/{kind}/{code}", clipped(attempt.outcome, SAMPLE_CHARS_MAX)
            )

    def _hit(self, what: str, kind: str, block: int, names: list[str]) -> None:
        base = f"{what}/{kind}"
        self.trials.setdefault(base, Counter())[block] += 1
        for each in names:
            self.hits.setdefault(f"{base}/{each}", Counter())[block] += 1


def outcome_of(pair: Pair) -> str:
    """Return the outcome of an operation: `ok`, `refused` (by the target), `failed` or `info`."""
    done = pair.completion
    if pair.type is OpType.FAIL and done is not None:
        return "refused" if is_no(done.value) else "failed"
    return pair.type.value


def answers_of(pair: Pair) -> Iterator[str]:
    """Yield the results in an answer: `result`, or one result per written row."""
    if pair.completion is None:
        return
    result, rows = field_of(pair.completion, "result"), field_of(pair.completion, "rows")
    if isinstance(result, str):
        yield result
    elif isinstance(rows, list):
        yield from (row for row in rows if isinstance(row, str))


# --- times ---------------------------------------------------------------------------------------


def _times(history: History, every: Sequence[Fault]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {}
    begin_ns, end_ns = _load(history)
    faults = [fault for fault in every if fault.targets and begin_ns <= fault.start < end_ns]
    changes = sorted(
        (pair.invoke.time, pair.completion.time)
        for pair in history.pairs
        if pair.type is OpType.OK and pair.completion and kind_of(pair.invoke) not in READS
    )
    ends = sorted(end for _, end in changes)
    leaders = [op.time for op in history.leaders()]
    waits: dict[str, dict[int, int]] = {}
    for place, fault in enumerate(faults):
        until = faults[place + 1].start if place + 1 < len(faults) else end_ns
        first = bisect.bisect_left(changes, (fault.start, 0))
        if first < len(changes):
            end = min(end for _, end in changes[first:])
            _wait(waits, f"{FAILOVER}/{fault.nemesis}", fault.start, end)
        after = bisect.bisect_right(ends, -1 if fault.end is None else fault.end)
        if fault.end is not None and after < len(ends):
            _wait(waits, f"{RECOVERY}/{fault.nemesis}", fault.end, ends[after])
        seen = bisect.bisect_right(leaders, fault.start)
        if seen < len(leaders) and leaders[seen] < until:
            taken = times.setdefault(f"{ELECTION}/{fault.nemesis}", [])
            taken.append(leaders[seen] - fault.start)
    for name, by_end in waits.items():
        times[name] = [end - start for end, start in sorted(by_end.items())]
    operations, notes = of_history(history)
    look = Timeline(notes.history, notes.end_ns)
    for kind, outages in outages_by_kind(operations, notes.end_ns).items():
        for outage in outages:
            if look.phase(outage.start) in LOAD:
                times.setdefault(f"{OUTAGE}/{kind}", []).append(outage.end - outage.start)
    for pair in history.pairs:
        if pair.type is OpType.OK and pair.completion and begin_ns <= pair.invoke.time < end_ns:
            took = pair.completion.time - pair.invoke.time
            times.setdefault(f"{LATENCY}/{kind_of(pair.invoke)}", []).append(took)
    return times


def _wait(waits: dict[str, dict[int, int]], name: str, start: int, end: int) -> None:
    """Record a wait from `start` to `end`. Of waits with the same end, only the longest counts."""
    by_end = waits.setdefault(name, {})
    by_end[end] = min(start, by_end.get(end, start))


def _load(history: History) -> tuple[int, int]:
    """Return start and end of the phases under load. Without phases, the whole history counts."""
    phases = phases_of(history)
    begins = [time_ns for time_ns, name in phases if name in LOAD]
    if not begins:
        return 0, (history[-1].time + 1 if len(history) else 0)
    after = [time_ns for time_ns, name in phases if name not in LOAD and time_ns > begins[0]]
    return begins[0], min(after, default=history[-1].time + 1)


def _faults(faults: Sequence[Fault]) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for fault in faults:
        hit, planned = counts.get(fault.nemesis, (0, 0))
        counts[fault.nemesis] = (hit + bool(fault.targets), planned + 1)
    return counts


# --- requests ------------------------------------------------------------------------------------


def _requests(case: Case, history: History) -> list[tuple[str, str]] | None:
    if case.ops is None or case.faults:
        return None
    threads: dict[int, list[Pair]] = {}
    for op, pair in recorded_ops(case, history):
        threads.setdefault(op.process, []).append(pair)
    queues = {thread: iter(pairs) for thread, pairs in threads.items()}
    answers = []
    for op in sorted(case.ops, key=lambda op: op.at_ns):
        queue = queues.get(op.process % case.concurrency, iter(()))
        sent = next(queue, None)
        asked = {k: v for k, v in (op.value or {}).items() if k != "nonce"}
        words = clipped(f"{op.f} {msgspec.json.encode(asked).decode()}", REQUEST_CHARS_MAX)
        answers.append((words, NEVER_SENT if sent is None else answer_in_words(sent)))
    return answers


def answer_in_words(pair: Pair) -> str:
    """Describe an operation's answer: outcome, results, and the code of the last message."""
    done = pair.completion
    parts = [pair.type.value, *(each for each in answers_of(pair) if each != "ok")]
    if done is not None and done.attempts and done.attempts[-1].outcome != "ok":
        parts.append(error_code(done.attempts[-1].outcome))
    elif done is not None and done.error and pair.type is not OpType.OK:
        parts.append(error_code(done.error))
    return " ".join(parts)
