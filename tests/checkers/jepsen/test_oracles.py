"""Small random histories of each model, compared with oracles that try all possibilities.

`MEANING` defines each model once more, without shortcuts, and must agree with every verdict.
`possible` tries every order of the operations that may have taken effect. If one order explains the
answers, no verdict may be invalid.
"""

import itertools
import random
from collections import Counter
from math import inf

import pytest

from harness.ops import Op, OpType, Verdict
from harness.registry import load_plugin
from tests.support.histories import judged_by
from tests.support.orders import has_order

INVALID = Verdict.INVALID
SEEDS = 300


class Call:
    """One operation of a generated history; without an acknowledgement, it never ends."""

    def __init__(self, f, asked, begin):
        self.f, self.asked, self.begin = f, asked, begin
        self.end, self.type, self.answer = inf, OpType.INFO, None

    @property
    def ok(self):
        return self.type is OpType.OK

    @property
    def maybe(self):
        return self.type is not OpType.FAIL


def generated(rng, world):
    lines, calls, open_ = [], [], {}
    clients, spare = [0, 1, 2], 3
    for _ in range(rng.randint(6, 18)):
        slot = rng.randrange(3)
        who = clients[slot]
        if who not in open_:
            f, asked = world.draw(rng)
            call = Call(f, asked, len(lines))
            calls.append(call)
            early = rng.random() < 0.5
            kind = rng.choices([OpType.OK, OpType.INFO, OpType.FAIL], [8, 2, 1])[0]
            happens = kind is OpType.OK or (kind is OpType.INFO and rng.random() < 0.5)
            answer = world.act(f, asked) if early and happens else None
            open_[who] = (call, kind, happens and not early, answer)
            lines.append((who, OpType.INVOKE, f, asked))
            continue
        call, kind, happens, answer = open_.pop(who)
        if happens:
            answer = world.act(call.f, call.asked)
        call.type = kind
        if kind is OpType.OK:
            call.end = len(lines)
            call.answer = world.bend(call.f, answer, rng) if rng.random() < 0.25 else answer
        elif kind is OpType.FAIL:
            call.end = len(lines)
        value = call.answer if call.answer is not None else call.asked
        lines.append((who, kind, call.f, value if kind is OpType.OK else call.asked))
        if kind is OpType.INFO:
            clients[slot], spare = spare, spare + 1
    ops = [Op(n, n, who, kind, f, value) for n, (who, kind, f, value) in enumerate(lines)]
    return ops, calls


def possible(world, calls):
    """Whether some order of all certain calls and some uncertain calls explains all answers."""
    items = [(call.begin, call.end if call.ok else inf, call) for call in calls if call.maybe]
    return has_order(items, world.initial, world.after)


# --- the objects and their definitions ---------------------------------------------------------


class SetWorld:
    initial = frozenset()

    def __init__(self):
        self.held, self.fresh = set(), itertools.count(1)

    def draw(self, rng):
        if rng.random() < 0.5:
            return "read", None
        return "add", rng.choice([next(self.fresh), 1, 2])

    def act(self, f, asked):
        if f == "add":
            self.held.add(asked)
            return None
        return sorted(self.held)

    def bend(self, f, answer, rng):
        if f != "read":
            return answer
        return rng.choice([answer[:-1], answer[1:], [*answer, 9], answer + answer[:1], []])

    @staticmethod
    def after(state, call):
        if call.f == "add":
            return [state | {call.asked}]
        return [state] if not call.ok or sorted(state) == sorted(call.answer) else []


def element_broken(element, calls, *, linearizable):
    """Whether some read contradicts the adds of `element`, by the definition of the model."""
    adds = [c for c in calls if c.f == "add" and c.asked == element and c.maybe]
    reads = [c for c in calls if c.f == "read" and c.ok]
    known = min(
        [c.end for c in adds if c.ok] + [c.end for c in reads if element in c.answer], default=inf
    )
    missed = [c for c in reads if element not in c.answer and c.begin > known]
    shown = [c for c in reads if element in c.answer]
    if linearizable:
        return bool(missed)
    return any(all(s.begin < m.begin for s in shown) for m in missed)


def wrongly_shown(read, calls):
    """Whether the read shows an element twice, or an element that no client can have added."""
    return len(set(read.answer)) < len(read.answer) or any(
        not any(
            c.f == "add" and c.asked == element and c.maybe and c.begin < read.end for c in calls
        )
        for element in read.answer
    )


def set_broken(calls, *, linearizable):
    added = {c.asked for c in calls if c.f == "add" and c.maybe}
    return any(wrongly_shown(c, calls) for c in calls if c.f == "read" and c.ok) or any(
        element_broken(element, calls, linearizable=linearizable) for element in added
    )


def final_broken(calls):
    reads = [c for c in calls if c.f == "read" and c.ok]
    if not reads:
        return False
    last = max(reads, key=lambda c: c.end)
    lost = (c for c in calls if c.f == "add" and c.ok and c.end < last.begin)
    return wrongly_shown(last, calls) or any(c.asked not in last.answer for c in lost)


class CounterWorld:
    initial = 0

    def __init__(self):
        self.total = 0

    def draw(self, rng):
        return ("read", None) if rng.random() < 0.5 else ("add", rng.choice([1, 2, 5, 5, -3]))

    def act(self, f, asked):
        if f == "add":
            self.total += asked
            return None
        return self.total

    def bend(self, f, answer, rng):
        return answer if f == "add" else answer + rng.choice([-1, 1, 2, 4])

    @staticmethod
    def after(state, call):
        if call.f == "add":
            return [state + call.asked]
        return [state] if not call.ok or call.answer == state else []


def counter_broken(calls):
    """Whether some read is not a possible sum; tries every choice of adds that it may see."""
    adds = [c for c in calls if c.f == "add" and c.maybe]
    for read in (c for c in calls if c.f == "read" and c.ok):
        choices = [
            (1,) if c.ok and c.end < read.begin else (0, 1) if c.begin < read.end else (0,)
            for c in adds
        ]
        sums = {
            sum(c.asked * seen for c, seen in zip(adds, choice, strict=True))
            for choice in itertools.product(*choices)
        }
        if read.answer not in sums:
            return True
    return False


class BankWorld:
    initial = (10, 10, 0)

    def __init__(self):
        self.held = [10, 10, 0]

    def draw(self, rng):
        if rng.random() < 0.5:
            return "read", None
        source, target = rng.sample(range(3), 2)
        return "transfer", {"from": source, "to": target, "amount": rng.randint(1, 6)}

    def act(self, f, asked):
        if f == "transfer":
            self.held[asked["from"]] -= asked["amount"]
            self.held[asked["to"]] += asked["amount"]
            return None
        return {str(n): balance for n, balance in enumerate(self.held)}

    def bend(self, f, answer, rng):
        if f == "transfer":
            return answer
        account = rng.choice("012")
        return answer | {account: answer[account] + rng.choice([-1, 1])}

    @staticmethod
    def after(state, call):
        if call.f == "read":
            seen = call.ok and tuple(call.answer[str(n)] for n in range(3)) != state
            return [] if seen else [state]
        held = list(state)
        held[call.asked["from"]] -= call.asked["amount"]
        held[call.asked["to"]] += call.asked["amount"]
        return [tuple(held)]


def bank_broken(calls, *, overdraft):
    reads = [c for c in calls if c.f == "read" and c.ok]
    totals = {sum(c.answer.values()) for c in reads}
    negative = any(balance < 0 for c in reads for balance in c.answer.values())
    return len(totals) > 1 or (negative and not overdraft)


class QueueWorld:
    initial = ()

    def __init__(self):
        self.held, self.fresh, self.rng = [], itertools.count(1), random.Random(0)

    def draw(self, rng):
        kind = rng.choices(["enqueue", "dequeue", "drain"], [5, 3, 2])[0]
        return kind, rng.choice([next(self.fresh), 1]) if kind == "enqueue" else None

    def act(self, f, asked):
        if f == "enqueue":
            self.held.append(asked)
            return None
        if f == "drain":
            taken, self.held = self.held, []
            return taken
        return self.held.pop(self.rng.randrange(len(self.held))) if self.held else None

    def bend(self, f, answer, rng):
        if f == "enqueue":
            return answer
        if f == "dequeue":
            return rng.choice([None, 1, 2])
        return rng.choice([answer[1:], [*answer, 1], []])

    @staticmethod
    def after(state, call):
        if call.f == "enqueue":
            return [tuple(sorted((*state, call.asked)))]
        if call.f == "drain":
            return [()] if not call.ok or tuple(sorted(call.answer)) == state else []
        if not state:
            return [state] if not call.ok or call.answer is None else []
        taken = range(len(state)) if not call.ok else [
            n for n, element in enumerate(state) if element == call.answer
        ]  # fmt: skip
        return [state[:n] + state[n + 1 :] for n in taken]


def queue_broken(calls, *, duplicates):
    """Whether an element came out that never went in, or vanished without a lost dequeue."""
    out = [
        (c.end, element)
        for c in calls
        if c.ok and c.f != "enqueue"
        for element in (c.answer if c.f == "drain" else [c.answer] * (c.answer is not None))
    ]
    for end, element in out:
        went_in = [c for c in calls if c.f == "enqueue" and c.asked == element and c.maybe]
        before = sum(c.begin < end for c in went_in)
        if not before or (
            not duplicates and sum(e == element for at, e in out if at <= end) > before
        ):
            return True
    came_out = Counter(element for _, element in out)
    for drain in (c for c in calls if c.ok and c.f != "enqueue"):
        if drain.f == "dequeue" and drain.answer is not None:
            continue
        unknown = [
            c for c in calls if c.type is OpType.INFO and c.begin < drain.end and c.f != "enqueue"
        ]
        if any(c.f == "drain" for c in unknown):
            continue
        acknowledged = Counter(
            c.asked for c in calls if c.f == "enqueue" and c.ok and c.end < drain.begin
        )
        if (acknowledged - came_out).total() > len(unknown):
            return True
    return False


class IdWorld:
    initial = frozenset()

    def __init__(self):
        self.last = 0

    def draw(self, rng):
        return "generate", None

    def act(self, f, asked):
        self.last += 1
        return self.last

    def bend(self, f, answer, rng):
        return max(1, answer - 1)

    @staticmethod
    def after(state, call):
        if not call.ok:
            return [state]
        return [] if call.answer in state else [state | {call.answer}]


class ForkWorld:
    """An object of three keys, each written once; reads ask for all keys."""

    initial = frozenset()

    def __init__(self):
        self.held, self.left = set(), ["x", "y", "z"]

    def draw(self, rng):
        if self.left and rng.random() < 0.4:
            key = self.left.pop(rng.randrange(len(self.left)))
            return "txn", [["w", key, 1]]
        return "txn", [["r", key, None] for key in rng.sample("xyz", 3)]

    def act(self, f, asked):
        if asked[0][0] == "w":
            self.held.add(asked[0][1])
            return None
        return [["r", key, 1 if key in self.held else None] for _, key, _ in asked]

    def bend(self, f, answer, rng):
        if answer is None:
            return None
        place = rng.randrange(3)
        _, key, value = answer[place]
        return [*answer[:place], ["r", key, None if value else 1], *answer[place + 1 :]]


def fork_broken(calls):
    """Whether no single order of all writes explains every read as a prefix of that order."""
    writes = {c.asked[0][1]: c for c in calls if c.asked[0][0] == "w"}
    reads = [c for c in calls if c.asked[0][0] == "r" and c.ok]
    seen = [{key for _, key, value in c.answer if value is not None} for c in reads]
    for read, keys in zip(reads, seen, strict=True):
        if any(k not in writes or not writes[k].maybe or writes[k].begin > read.end for k in keys):
            return True
    return not any(
        all(keys == set(order[: len(keys)]) for keys in seen)
        for order in itertools.permutations("xyz")
    )


class CauseWorld(SetWorld):
    """A set to which each value is added once."""

    def draw(self, rng):
        return ("read", None) if rng.random() < 0.5 else ("write", next(self.fresh))

    def act(self, f, asked):
        return super().act("add" if f == "write" else f, asked)


def cause_broken(calls):
    """Whether some read shows writes that cannot come first in any real-time order."""
    writes = [c for c in calls if c.f == "write" and c.maybe]
    for read in (c for c in calls if c.f == "read" and c.ok):
        shown = set(read.answer)
        if not shown <= {c.asked for c in writes if c.begin < read.end}:
            return True
        inside = [c for c in writes if c.asked in shown]
        outside = [c for c in writes if c.asked not in shown and c.ok]
        # An order that begins with `inside` exists unless a write in `outside` had to precede one
        # in `inside`.
        items = [(c.begin, c.end if c.ok else inf, c) for c in inside + outside]
        if not has_order(items, frozenset(c.asked for c in inside), first_these):
            return True
    return False


def first_these(left, call):
    if call.asked in left:
        return [left - {call.asked}]
    return [] if left else [left]


class InsertWorld:
    initial = frozenset()

    def __init__(self):
        self.held, self.fresh = set(), itertools.count(1)

    def draw(self, rng):
        ids = [next(self.fresh), None]
        rng.shuffle(ids)
        return "insert", [rng.choice([1, 2, 3, 4]), ids]

    def act(self, f, asked):
        self.held.add(asked[0])

    def bend(self, f, answer, rng):
        return answer

    @staticmethod
    def after(state, call):
        if not call.ok and call.asked[0] in state:
            return [state]
        return [] if call.asked[0] in state else [state | {call.asked[0]}]


def pairs_broken(calls, same):
    done = [c for c in calls if c.ok]
    return any(same(a) == same(b) for a, b in itertools.combinations(done, 2))


MEANING = {
    "set-full": (SetWorld, lambda calls: set_broken(calls, linearizable=False)),
    "set-full-linearizable": (SetWorld, lambda calls: set_broken(calls, linearizable=True)),
    "set-final": (SetWorld, final_broken),
    "counter": (CounterWorld, counter_broken),
    "bank": (BankWorld, lambda calls: bank_broken(calls, overdraft=False)),
    "bank-overdraft": (BankWorld, lambda calls: bank_broken(calls, overdraft=True)),
    "total-queue": (QueueWorld, lambda calls: queue_broken(calls, duplicates=False)),
    "at-least-once-queue": (QueueWorld, lambda calls: queue_broken(calls, duplicates=True)),
    "unique-ids": (IdWorld, lambda calls: pairs_broken(calls, lambda call: call.answer)),
    "long-fork": (ForkWorld, fork_broken),
    "causal-reverse": (CauseWorld, cause_broken),
    "g2": (InsertWorld, lambda calls: pairs_broken(calls, lambda call: call.asked[0])),
}
UNSEARCHED = frozenset({"bank", "long-fork", "causal-reverse"})  # `possible` cannot judge these


@pytest.mark.parametrize("model", MEANING)
def test_verdicts_are_the_definitions(model):
    make, broken = MEANING[model]
    verdicts = Counter()
    for seed in range(SEEDS):
        world = make()
        ops, calls = generated(random.Random(f"{model} {seed}"), world)
        result, _ = judged_by(model, ops)
        expected = broken(calls)
        assert (result.verdict is INVALID) is expected, (seed, ops, result)
        verdicts[result.verdict] += 1
        if model not in UNSEARCHED and result.verdict is INVALID:
            assert not possible(world, calls), (seed, ops, result)
        if result.verdict is INVALID:
            assert result.operations, seed
            assert {op.index for op in ops} >= set(result.operations), seed
    assert verdicts[INVALID] > 30, verdicts
    assert verdicts[Verdict.VALID] > 30, verdicts


class Lock:
    initial = None

    @staticmethod
    def after(state, call):
        who = call.asked
        if call.f == "acquire":
            return [who] if state is None else [state] * (not call.ok)
        return [None] if state == who else [state] * (not call.ok)


def test_a_lock_with_owners_is_held_to_all_orders():
    verdicts = Counter()
    for seed in range(SEEDS):
        rng = random.Random(f"lock {seed}")
        lines, calls, open_ = [], [], {}
        clients, spare, holder = [0, 1, 2], 3, None
        for _ in range(rng.randint(6, 18)):
            slot = rng.randrange(3)
            who = clients[slot]
            if who not in open_:
                right = "release" if holder == who else "acquire"
                f = right if rng.random() < 0.8 else rng.choice(["acquire", "release"])
                open_[who] = Call(f, who, len(lines))
                calls.append(open_[who])
                lines.append((who, OpType.INVOKE, f, None))
                continue
            call = open_.pop(who)
            works = holder is None if call.f == "acquire" else holder == who
            kind = OpType.OK if works or rng.random() < 0.15 else OpType.FAIL
            if rng.random() < 0.15:
                kind = OpType.INFO
            if works and kind is not OpType.FAIL:
                holder = who if call.f == "acquire" else None
            call.type = kind
            call.end = len(lines) if kind is not OpType.INFO else inf
            lines.append((who, kind, call.f, None))
            if kind is OpType.INFO:
                clients[slot], spare = spare, spare + 1
        ops = [Op(n, n, who, kind, f, value) for n, (who, kind, f, value) in enumerate(lines)]
        result, _ = judged_by("owned-mutex", ops)
        expected = possible(Lock(), calls)
        assert (result.verdict is INVALID) is not expected, (seed, ops)
        verdicts[result.verdict] += 1
    assert verdicts[INVALID] > 30, verdicts
    assert verdicts[Verdict.VALID] > 30, verdicts


def test_every_model_has_an_oracle():
    names = {*MEANING, "owned-mutex"}
    assert all(load_plugin("checkers", name).name == name for name in names)
