"""A brute-force oracle of every consistency model for tiny histories.

An abstract execution (Cerone, Bernardi, Gotsman, 2015) puts the transactions that took effect in a
total order, called the arbitration. It also says which other transactions each of them sees. The
oracle tries all orders and all visibilities. A read returns its own transaction's last write or,
without one, the last visible version in the order. The models differ in their conditions on
visibility.

Models weaker than atomic visibility depend on the order alone: on the version that each read
returned, and on that version's position.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

from checkers.elle import Transaction
from harness.ops import OpType

KEYS = "xyz"
Bits = int
Order = tuple[int, ...]
Edges = list[tuple[int, int]]
Seen = dict[int, Bits]


@dataclass
class _Read:
    """A read by a transaction: the key, the value that it saw, and the reader's earlier writes
    (`own`).
    """

    reader: int
    key: str
    value: Any
    own: list[Any]
    number: int


class Execution:
    """A history and the transactions that took effect, in arbitration order."""

    def __init__(self, txns: list[Transaction], order: Order, *, lists: bool) -> None:
        self.txns, self.order, self.lists = txns, order, lists
        self.place = {txn: at for at, txn in enumerate(order)}
        self.writers: dict[str, list[int]] = {key: [] for key in KEYS}
        self.wrote: dict[tuple[int, str], list[Any]] = {}
        for txn in order:
            for f, key, value in txns[txn].value:
                if f != "r":
                    self.wrote.setdefault((txn, key), []).append(value)
                    if txn not in self.writers[key]:
                        self.writers[key].append(txn)
        self.reads = [read for txn in order for read in self._reads(txn)]
        # A value without a writer is the initial value. If a key shows two such values, one of them
        # was never in the store.
        written = {(key, v) for txn in txns for f, key, v in txn.value if f != "r"}
        self.initial = {
            read.key: read.value
            for read in self.reads
            if not lists and read.value is not None and (read.key, read.value) not in written
        }

    def _reads(self, txn: int) -> Iterator[_Read]:
        own: dict[str, list[Any]] = {}
        for number, (f, key, value) in enumerate(self.txns[txn].value):
            if f != "r":
                own.setdefault(key, []).append(value)
            elif self.txns[txn].type is OpType.OK:
                shown = list(value or ()) if self.lists else value
                yield _Read(txn, key, shown, list(own.get(key, ())), number)

    def state(self, key: str, visible: Bits, reader: int) -> Any:
        """Return the value of `key` after the visible transactions, without the reader's writes."""
        seen = [t for t in self.writers[key] if visible >> t & 1 and t != reader]
        if self.lists:
            # A list shows all earlier appends, so all appends arbitrated before the last one are
            # visible.
            last = self.writers[key].index(seen[-1]) + 1 if seen else 0
            before = [t for t in self.writers[key][:last] if t != reader]
            return [value for t in before for value in self.wrote[t, key]]
        return self.wrote[seen[-1], key][-1] if seen else self.initial.get(key)

    def shows(self, read: _Read, visible: Bits) -> bool:
        """Whether a read returns what the visible transactions imply."""
        if self.lists and read.own:
            # After its own append, the reader has also seen the version that it appended to.
            before = self.writers[read.key][: self.writers[read.key].index(read.reader)]
            if before and not visible >> before[-1] & 1:
                return False
            visible = sum(1 << txn for txn in before)
        state = self.state(read.key, visible, read.reader)
        if self.lists:
            return bool(read.value == state + read.own)
        return bool(read.value == (read.own[-1] if read.own else state))

    def versions(self, read: _Read) -> list[int]:
        """Return the writers of the versions that a read may show; -1 is the initial version."""
        return [
            writer
            for writer in (-1, *self.writers[read.key])
            if writer != read.reader and self.shows(read, 0 if writer < 0 else 1 << writer)
        ]


Judge = Callable[[Execution, Seen], bool]


def order_of(txns: list[Transaction], happened: Order, kind: str) -> Edges:
    """Return the order in sessions, or the order in real time."""
    pairs = []
    for one in happened:
        for two in happened:
            first, second = txns[one], txns[two]
            ended = first.type is OpType.OK and first.end is not None and first.end < second.call
            if ended and (kind == "realtime" or first.process == second.process):
                pairs.append((one, two))
    return pairs if kind else []


# --- atomic visibility ---------------------------------------------------------------------------


def _visibilities(order: Order, must: Edges) -> Iterator[Seen]:
    """Yield every choice of visible transactions among those arbitrated before each transaction."""
    free = [
        (one, two) for at, two in enumerate(order) for one in order[:at] if (one, two) not in must
    ]
    base = dict.fromkeys(order, 0)
    for one, two in must:
        base[two] |= 1 << one
    for count in range(1 << len(free)):
        seen = dict(base)
        for number, (one, two) in enumerate(free):
            if count >> number & 1:
                seen[two] |= 1 << one
        yield seen


def _transitive(run: Execution, seen: Seen) -> bool:
    return all(
        not seen[one] & ~seen[two] for two in run.order for one in run.order if seen[two] >> one & 1
    )


def _prefix(run: Execution, seen: Seen) -> bool:
    for two in run.order:
        last = max((run.place[one] for one in run.order if seen[two] >> one & 1), default=-1)
        if any(not seen[two] >> one & 1 for one in run.order[: last + 1]):
            return False
    return True


def _no_conflict(run: Execution, seen: Seen) -> bool:
    return all(
        seen[two] >> one & 1
        for writers in run.writers.values()
        for at, two in enumerate(writers)
        for one in writers[:at]
    )


def _total(run: Execution, seen: Seen) -> bool:
    return all(
        seen[two] == sum(1 << one for one in run.order[:at]) for at, two in enumerate(run.order)
    )


def _always(_run: Execution, _seen: Seen) -> bool:
    return True


def _causal_snapshot(run: Execution, seen: Seen) -> bool:
    return _transitive(run, seen) and _no_conflict(run, seen)


def _snapshot(run: Execution, seen: Seen) -> bool:
    return _prefix(run, seen) and _no_conflict(run, seen)


ATOMIC: Mapping[str, tuple[Judge, str]] = {
    "read-atomic": (_always, ""),
    "update-atomic": (_no_conflict, ""),
    "causal-cerone": (_transitive, ""),
    "parallel-snapshot-isolation": (_causal_snapshot, ""),
    "consistent-view": (_causal_snapshot, ""),
    "prefix": (_prefix, ""),
    "snapshot-isolation": (_snapshot, ""),
    "strong-session-snapshot-isolation": (_snapshot, "process"),
    "strong-snapshot-isolation": (_snapshot, "realtime"),
    "repeatable-read": (_total, ""),
    "serializable": (_total, ""),
    "view-serializable": (_total, ""),
    "1SR": (_total, ""),
    "session-serializable": (_total, "process"),
    "strong-session-serializable": (_total, "process"),
    "strict-serializable": (_total, "realtime"),
    # The strongest form of each model, whose unit is the transaction. A verdict `valid` must hold
    # in this form, too.
    "linearizable": (_total, "realtime"),
    "sequential": (_total, "process"),
    "causal": (_transitive, "process"),
    "PRAM": (_always, "process"),
    "read-your-writes": (_always, "process"),
    "update-serializable": (_total, ""),
    "forward-consistent-view": (_snapshot, ""),
    "monotonic-snapshot-read": (_prefix, ""),
    "writes-follow-reads": (_transitive, "process"),
    "monotonic-reads": (_transitive, "process"),
    "monotonic-writes": (_transitive, "process"),
}


# --- models weaker than atomic visibility --------------------------------------------------------


def _committed(run: Execution, reads: Iterable[_Read] | None = None) -> list[list[int]]:
    """Return the possible versions of each read that are arbitrated before its transaction."""
    return [
        [v for v in run.versions(read) if v < 0 or run.place[v] < run.place[read.reader]]
        for read in (run.reads if reads is None else reads)
    ]


def _read_committed(run: Execution, _seen: Seen) -> bool:
    """Whether every read shows a committed version plus the first few of its own earlier writes."""
    longest = max((len(read.own) for read in run.reads), default=0)
    parts = [
        _committed(run, [replace(read, own=read.own[:count]) for read in run.reads])
        for count in range(longest + 1)
    ]
    return all(any(choices) for choices in zip(*parts, strict=True))


def _cursor_stable(run: Execution, _seen: Seen) -> bool:
    """Whether reads are committed, and no key that is read and then written changes in between."""
    choices = _committed(run)
    for read, versions in zip(run.reads, choices, strict=True):
        writers = run.writers[read.key]
        later = any(
            f != "r" and key == read.key for f, key, _ in run.txns[read.reader].value[read.number :]
        )
        if later and not read.own:
            at = writers.index(read.reader)
            if (writers[at - 1] if at else -1) not in versions:
                return False
    return all(choices)


def _monotonic_view(run: Execution, _seen: Seen) -> bool:
    """Whether reads are committed, and a transaction that saw another one continues to see it.

    Each read has one possible version, because values are unique.
    """
    choices = _committed(run)
    if not all(choices):
        return False
    known: dict[int, Bits] = {}
    for read, versions in zip(run.reads, choices, strict=True):
        writers = [-1, *run.writers[read.key]]
        seen = known.get(read.reader, 0)
        fits = [v for v in versions if read.own or not any(
            seen >> t & 1 for t in writers[writers.index(v) + 1 :]
        )]  # fmt: skip
        if not fits:
            return False
        if fits[0] >= 0 and not read.own:
            known[read.reader] = seen | 1 << fits[0]
    return True


ARBITRATED: Mapping[str, tuple[Judge, str]] = {
    "read-committed": (_read_committed, ""),
    "strong-session-read-committed": (_read_committed, "process"),
    "strong-read-committed": (_read_committed, "realtime"),
    "cursor-stability": (_cursor_stable, ""),
    "monotonic-atomic-view": (_monotonic_view, ""),
    "monotonic-view": (_monotonic_view, ""),
}


def _read_uncommitted(run: Execution, _seen: Seen) -> bool:
    """Whether all lists can have grown in this order; for registers, every order is possible.

    A transaction without an answer took effect if another one read its writes.
    """
    if not run.lists:
        return True
    for key in KEYS:
        values = [value for t in run.writers[key] for value in run.wrote[t, key]]
        lost = {
            value
            for number, txn in enumerate(run.txns)
            for f, name, value in txn.value
            if f != "r" and name == key and txn.type is OpType.INFO and number not in run.order
        }
        if any(lost & set(read.value) for read in run.reads if read.key == key):
            return False
        for read in run.reads:
            if read.key == key:
                shown = [value for value in read.value if value in values]
                if shown != values[: len(shown)]:
                    return False
    return True


UNCOMMITTED: Mapping[str, tuple[Judge, str]] = {
    "read-uncommitted": (_read_uncommitted, ""),
    "strong-session-read-uncommitted": (_read_uncommitted, "process"),
    "strong-read-uncommitted": (_read_uncommitted, "realtime"),
}


class Oracle:
    """An oracle for one history; models with the same definition are tried only once."""

    def __init__(self, history: list[Transaction], *, lists: bool) -> None:
        self._history, self._lists = history, lists
        self._known: dict[Any, bool] = {}

    def _executions(self, kind: str) -> Iterator[tuple[Order, Edges]]:
        """Yield every order of `kind` of all committed and some uncertain transactions."""
        history = self._history
        sure = [i for i, txn in enumerate(history) if txn.type is OpType.OK]
        perhaps = [i for i, txn in enumerate(history) if txn.type is OpType.INFO]
        for count in range(len(perhaps) + 1):
            for chosen in combinations(perhaps, count):
                happened = tuple(sorted([*sure, *chosen]))
                order = order_of(history, happened, kind)
                for arbitration in permutations(happened):
                    place = {txn: at for at, txn in enumerate(arbitration)}
                    if all(place[one] < place[two] for one, two in order):
                        yield arbitration, order

    def holds(self, model: str) -> bool:
        """Whether some execution of the history obeys the model."""
        judge, kind = UNCOMMITTED.get(model) or ARBITRATED.get(model) or ATOMIC[model]
        if (judge, kind) not in self._known:
            self._known[judge, kind] = any(
                self._obeys(Execution(self._history, order, lists=self._lists), judge, edges)
                for order, edges in self._executions(kind)
            )
        return self._known[judge, kind]

    def _obeys(self, run: Execution, judge: Judge, order: Edges) -> bool:
        if judge in BY_VISIBILITY:
            return any(
                all(run.shows(read, seen[read.reader]) for read in run.reads) and judge(run, seen)
                for seen in _visibilities(run.order, order)
            )
        return judge(run, {})


BY_VISIBILITY = {judge for judge, _ in ATOMIC.values()}
MODELS = (*UNCOMMITTED, *ARBITRATED, *ATOMIC)


# --- histories -----------------------------------------------------------------------------------


def random_history(rng: random.Random, *, lists: bool) -> list[Transaction]:
    """Build a history of up to four serial transactions, in which some reads show a wrong state.

    The wrong state is an earlier or later one, the same for all keys or one per key.
    """
    count = rng.choice((2, 3, 3, 4, 4, 4))
    spread = rng.choice((1, 3, 20))
    clock: dict[int, int] = {}
    counters = dict.fromkeys(KEYS, 0)
    plans = []
    for number in range(count):
        process = rng.randrange(3)
        call = clock.get(process, 0) + rng.randint(1, spread)
        end = clock[process] = call + rng.randint(1, 6)
        kind = rng.choices((OpType.OK, OpType.INFO, OpType.FAIL), (90, 7, 3))[0]
        if kind is OpType.INFO:
            process += 10 * (number + 1)
        mops: list[tuple[str, str, Any]] = []
        for _ in range(rng.randint(1, 3)):
            key = rng.choices(KEYS, (55, 40, 5))[0]
            write = rng.random() < 0.5
            counters[key] += write
            name = ("append" if lists else "w") if write else "r"
            mops.append((name, key, counters[key] if write else None))
        plans.append(Transaction(mops, 10 * call + number, 10 * end + number, kind, process))
    order = list(range(count))
    rng.shuffle(order)
    answers = _Answers(plans, order, rng, lists=lists)
    return [answers.of(number) for number in range(count)]


class _Answers:
    """The results of the reads of planned transactions."""

    def __init__(
        self, plans: list[Transaction], order: list[int], rng: random.Random, *, lists: bool
    ) -> None:
        self._plans, self._order, self._rng, self._lists = plans, order, rng, lists
        self._noise = rng.choice((0.0, 0.2, 0.5, 0.9))
        # whether a transaction may see keys in different states
        self._apart = rng.random() < 0.5

    def _state(self, key: str, reader: int, cut: int) -> list[Any]:
        return [
            value
            for txn in self._order[:cut]
            if txn != reader
            and (self._plans[txn].type is not OpType.FAIL or self._rng.random() < 0.05)
            for f, name, value in self._plans[txn].value
            if f != "r" and name == key
        ]

    def of(self, number: int) -> Transaction:
        plan, rng = self._plans[number], self._rng
        if plan.type is not OpType.OK:
            return Transaction(plan.value, plan.call, None, plan.type, plan.process)
        place = self._order.index(number)

        def cut() -> int:
            return rng.randint(0, len(self._order)) if rng.random() < self._noise else place

        one = cut()
        own: dict[str, list[Any]] = {}
        states: dict[str, list[Any]] = {}
        mops = []
        for f, key, value in plan.value:
            if f != "r":
                own.setdefault(key, []).append(value)
                mops.append((f, key, value))
                continue
            if key not in states or rng.random() < 0.05:
                states[key] = self._state(key, number, cut() if self._apart else one)
            seen = states[key] + own.get(key, [])
            if rng.random() < 0.01:
                seen = [99] if rng.random() < 0.5 else seen[:-1]
            mops.append(("r", key, seen if self._lists else seen[-1] if seen else None))
        return Transaction(mops, plan.call, plan.end, plan.type, plan.process)
