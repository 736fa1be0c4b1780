"""Semaphores, reentrant locks and fenced locks, compared with all possible orders."""

import random
from collections import Counter
from math import inf
from typing import NamedTuple

import pytest

from checkers.linearizability.models.counting_locks import (
    Acquire,
    ReentrantLock,
    Release,
    Semaphore,
)
from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, HistoryError, UsageError
from harness.ops import Op, OpType, Verdict
from tests.support.histories import judged_by, written
from tests.support.orders import has_order

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


class Kind(NamedTuple):
    model: str
    limit: int | None = None
    exclusive: bool = True
    owned: bool = True
    fenced: bool = False

    @property
    def settings(self):
        fixed = self.limit is None or self.model in {"owned-mutex", "fenced-mutex"}
        return {} if fixed else {"initial": self.limit}


KINDS = [
    Kind("semaphore", 2, exclusive=False, owned=False),
    Kind("owned-semaphore", 2, exclusive=False),
    Kind("owned-mutex", 1),
    Kind("reentrant-mutex", 2),
    Kind("reentrant-mutex"),
    Kind("fenced-mutex", 1, fenced=True),
    Kind("reentrant-fenced-mutex", fenced=True),
]


class Call:
    def __init__(self, f, permits, who, begin):
        self.f, self.permits, self.who, self.begin = f, permits, who, begin
        self.end, self.type, self.fence = inf, OpType.INFO, None


def after(kind, state, call, who):
    """Return the state after `call` by the client `who`, or `None` if it is refused.

    A state has the permits of each client, the fence of the holder, and the highest fence.
    """
    counts, current, highest = dict(state[0]), *state[1:]
    who = who if kind.owned else "all"
    held = counts.get(who, 0)
    if call.f == "release":
        if kind.owned and held < call.permits:
            return None
        counts[who] = held - call.permits
        current = current if any(counts.values()) else None
    else:
        if kind.limit is not None and sum(counts.values()) + call.permits > kind.limit:
            return None
        if kind.exclusive and any(n for name, n in counts.items() if name != who):
            return None
        counts[who] = held + call.permits
        if kind.fenced and call.fence is not None:
            if call.fence != current and (current is not None or call.fence <= highest):
                return None
            current, highest = call.fence, max(call.fence, highest)
    return tuple(sorted((n, c) for n, c in counts.items() if c)), current, highest


def drawn(kind, rng, named):
    """Return a random history with some wrong answers, and its calls.

    If it is `named`, answers name clients, and a client has other processes after a lost answer.
    """
    lines, calls, open_ = [], [], {}
    clients, spare = [0, 1, 2], 3
    state, known = ((), None, 0), set()
    for _ in range(rng.randint(6, 16)):
        slot = rng.randrange(3)
        process = clients[slot]
        who = f"n{slot}" if named else process
        if process not in open_:
            holds = dict(state[0]).get(who if kind.owned else "all", 0)
            rarely = rng.random() < 0.2
            f = "release" if rarely or (holds and rng.random() < 0.5) else "acquire"
            permits = rng.choice([1, 1, 2]) if not kind.exclusive else 1
            open_[process] = call = Call(f, permits, who, len(lines))
            calls.append(call)
            lines.append((process, OpType.INVOKE, f, permits if permits > 1 else "uid"))
            continue
        call = open_.pop(process)
        if kind.fenced and call.f == "acquire":
            call.fence = state[1] or state[2] + rng.randint(1, 2)
        then = after(kind, state, call, who)
        lied = rng.random() < 0.2
        if lied and call.fence is not None:
            call.fence = rng.choice([None, 1, 2, state[2]])
            call.fence = call.fence or None
        call.type = OpType.OK if then is not None or lied else OpType.FAIL
        if rng.random() < 0.2:
            call.type = OpType.INFO
        if call.type is OpType.OK:
            call.end = len(lines)
            known.add(process)
        if then is not None and (call.type is not OpType.INFO or rng.random() < 0.6):
            state = then
        call.process = process
        answer = {"client": who, "fence": call.fence or 0} if named else call.fence
        lines.append((process, call.type, call.f, answer if call.type is OpType.OK else None))
        if call.type is OpType.INFO:
            call.fence = None
            clients[slot], spare = spare, spare + 1
    for process, call in open_.items():
        call.process, call.fence = process, None
    if named and known:
        for call in calls:
            call.who = call.who if call.process in known else None
    elif named:
        for call in calls:
            call.who = call.process
    ops = [Op(n, n, who, kind, f, value) for n, (who, kind, f, value) in enumerate(lines)]
    return ops, calls


def possible(kind, calls):
    def successors(state, call):
        names = [call.who] if call.who is not None else ["n0", "n1", "n2"]
        states = [after(kind, state, call, who) for who in names]
        kept = [each for each in states if each is not None]
        return kept if call.type is OpType.OK else [*kept, state]

    items = [(c.begin, c.end, c) for c in calls if c.type is not OpType.FAIL]
    return has_order(items, ((), None, 0), successors)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.model}-{kind.limit}")
def test_verdicts_are_those_of_all_orders(kind, named):
    verdicts, lenient = Counter(), 0
    for seed in range(120):
        ops, calls = drawn(kind, random.Random(f"{kind.model} {named} {seed}"), named)
        try:
            result, _ = judged_by(kind.model, ops, **kind.settings)
        except HistoryError:
            assert kind.fenced
            assert not any(call.fence for call in calls)
            continue
        expected = possible(kind, calls)
        convicted = result.verdict is INVALID
        assert not (convicted and expected), (seed, ops)
        unknown = any(call.who is None and call.type is OpType.INFO for call in calls)
        if not convicted and not expected:
            # A release by an unknown client may have released the permits of several clients.
            assert unknown, (seed, ops)
            assert not kind.exclusive
            lenient += 1
        verdicts[result.verdict] += 1
    assert verdicts[INVALID] > 5, verdicts
    assert verdicts[VALID] > 10, verdicts
    assert lenient <= 3


# The shapes of Hazelcast's tests: requests have ids, and answers have clients and fences.


def did(process, f, client="n1", fence=0, kind="+"):
    answer = {"client": client, "fence": fence, "uid": "u"} if kind == "+" else "u"
    return [(f"{process}!", f, "u"), (f"{process}{kind}", f, answer)]


def got(process, fence=0, client="n1"):
    return did(process, "acquire", client, fence)


FREED = did(0, "release")
CASES = [
    ("fenced-mutex", [*got(0, 3), *FREED, *got(1, 4, "n2")], VALID),
    ("fenced-mutex", [*got(0, 3), *FREED, *got(1, 3, "n2")], INVALID),
    ("fenced-mutex", [*got(0, 3), *FREED, *got(1, 2, "n2")], INVALID),
    ("fenced-mutex", [*got(0, 3), *got(1, 4, "n2")], INVALID),
    ("fenced-mutex", [*got(0, 3), *got(0, 3)], INVALID),
    ("fenced-mutex", [*got(0, 3), *did(0, "release", kind="?"), *got(1, 4, "n2")], VALID),
    ("reentrant-fenced-mutex", [*got(0, 3), *got(0, 3), *FREED, *FREED, *got(1, 4, "n2")], VALID),
    ("reentrant-fenced-mutex", [*got(0, 3), *got(0, 4)], INVALID),
    ("reentrant-fenced-mutex", [*got(0, 3), *got(0, 3), *FREED, *got(1, 4, "n2")], INVALID),
    # a client has several processes, since a process ends with a lost answer
    ("owned-mutex", [*got(0), *did(0, "acquire", kind="?"), *did(5, "release")], VALID),
    ("owned-mutex", [*got(0), *did(5, "release", "n2")], INVALID),
    ("reentrant-mutex", [*got(0), *got(0), *FREED, *FREED, *got(1, 0, "n2")], VALID),
    ("reentrant-mutex", [*got(0), *got(0), *FREED, *got(1, 0, "n2")], INVALID),
    ("reentrant-mutex", [*got(0), *got(0), *got(0)], VALID),
    ("reentrant-mutex 2", [*got(0), *got(0), *got(0)], INVALID),
    ("owned-semaphore 2", [*got(0), *got(1, 0, "n2"), *FREED, *got(0)], VALID),
    ("owned-semaphore 2", [*got(0), *got(1, 0, "n2"), *got(2, 0, "n3")], INVALID),
    ("owned-semaphore 2", [*got(0), *did(1, "release", "n2")], INVALID),
    ("semaphore 2", [*got(0), *did(1, "release", "n2"), *did(1, "release", "n2")], VALID),
    ("semaphore 2", [*got(0), *got(0), *got(1, 0, "n2")], INVALID),
    ("semaphore 3", [("0!", "acquire", 2), ("0+", "acquire", True), *got(1), *got(2)], INVALID),
    ("semaphore 3", [("0!", "acquire", {"permits": 3}), ("0+", "acquire", None), *got(1)], INVALID),
    # a release by an unknown client may be of any permit, but there is only one such release
    (
        "owned-semaphore 2",
        [
            *(*got(0), *did(7, "acquire", kind="?"), *did(8, "release", kind="?")),
            *(*got(2, 0, "n3"), *did(1, "release", "n2")),
        ],
        VALID,
    ),
    (
        "owned-semaphore 2",
        [
            *(("0!", "acquire", 2), ("0+", "acquire", {"client": "n1"})),
            *(*did(8, "release", kind="?"), *got(1, 0, "n2"), *did(1, "release", "n2")),
            *(("0!", "release", 2), ("0+", "release", {"client": "n1"})),
        ],
        INVALID,
    ),
    ("owned-semaphore 1", [*did(0, "acquire", kind="?"), *did(5, "release", "n2")], VALID),
]


@pytest.mark.parametrize(("model", "lines", "verdict"), CASES)
def test_the_locks_of_hazelcast(model, lines, verdict):
    name, *limit = model.split()
    options = {"initial": int(limit[0])} if limit else {}
    assert judged_by(name, written(*lines), **options)[0].verdict is verdict


@pytest.mark.parametrize(
    ("model", "lines", "options", "error"),
    [
        ("semaphore", got(0), {}, UsageError),
        ("semaphore", got(0), {"initial": 0}, UsageError),
        ("reentrant-mutex", got(0), {"initial": "2"}, UsageError),
        ("fenced-mutex", got(0, 3), {"initial": 2}, UsageError),
        ("fenced-mutex", [*got(0), *FREED, *got(0)], {}, HistoryError),  # no fences
        (
            "fenced-mutex",
            [("0!", "acquire", 1), ("0+", "acquire", {"fence": "a"})],
            {},
            HistoryError,
        ),
        ("semaphore", [("0!", "acquire", -1)], {"initial": 2}, HistoryError),
        ("reentrant-mutex", [("0!", "acquire", None), ("0+", "acquire", False)], {}, HistoryError),
        ("reentrant-mutex", [("0!", "lock", None)], {}, HistoryError),
    ],
)
def test_what_no_lock_can_mean_is_refused(model, lines, options, error):
    with pytest.raises(error):
        judged_by(model, written(*lines), **options)


def test_locks_are_described_in_words():
    held = Semaphore(2, owned=True)
    _, state = held.step(held.init(), Acquire("n1"), None)
    assert held.describe_state(state) == "1 of 2 permits are taken (1 by n1)"
    assert held.describe_operation(Acquire("n1", 2), None) == "acquire of 2 for n1"
    lock = ReentrantLock(None)
    assert lock.describe_state(lock.init()) == "the lock is free"
    _, state = lock.step(lock.init(), Acquire("n1"), 7)
    _, state = lock.step(state, Acquire("n1"), 7)
    assert lock.describe_state(state) == "n1 has the lock 2 times; the highest fence is 7"
    assert lock.describe_operation(Acquire("n1"), 7) == "acquire for n1, with fence 7"
    assert lock.describe_operation(Release(), None) == "release"


def test_a_guessed_fenced_lock_is_not_convicted(tmp_path):
    path = tmp_path / "h.edn"

    def code(lines, *options):
        path.write_text("\n".join(lines))
        return main(["check", str(path), *options])

    def edn(process, fence, kind="ok"):
        answer = f'{{:client "n{process}" :fence {fence} :uid "u"}}'
        f = "acquire" if fence else "release"
        return [
            f'{{:process {process} :type :invoke :f :{f} :value "u"}}',
            f"{{:process {process} :type :{kind} :f :{f} :value {answer}}}",
        ]

    assert code([*edn(0, 1), *edn(0, 0), *edn(1, 2)]) == EXIT_VALID
    falling = [*edn(0, 5), *edn(0, 0), *edn(1, 2)]
    assert code(falling) == EXIT_UNKNOWN
    assert code(falling, "--model", "fenced-mutex") == EXIT_INVALID
    assert code([*edn(0, 1), *edn(0, 1)]) == EXIT_UNKNOWN
    assert code([*edn(0, 1), *edn(0, 1)], "--model", "reentrant-fenced-mutex") == EXIT_VALID
    assert code([*edn(0, 1), *edn(0, 1)], "--model", "semaphore", "--initial", "1") == EXIT_INVALID
