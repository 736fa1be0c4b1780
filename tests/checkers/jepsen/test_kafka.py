"""The model `kafka`, in cases for each rule and in small random histories with a naive oracle.

The random histories come from a correct log store, or from one with a bug that breaks one promise.
"""

import itertools
import random
from collections import Counter
from math import inf

import pytest

from checkers.jepsen.kafka.rules import EMPTY_POLLS
from harness.errors import HistoryError, UsageError
from harness.formats.edn.jepsen import load_edn
from harness.ops import Op, OpType, Verdict
from tests.support.histories import judged_by, parsed

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
SEEDS = 300
KEYS = ("x", "y")


def sent(key, offset, message):
    return ["send", key, [offset, message]]


def polled(**messages):
    return ["poll", {key: [list(each) for each in places] for key, places in messages.items()}]


def history(*lines):
    """Build ops from `(process, kind, f, value)`; the kinds are `!`, `+`, `-` and `?`."""
    kinds = {"!": OpType.INVOKE, "+": OpType.OK, "-": OpType.FAIL, "?": OpType.INFO}
    return [Op(n, n, who, kinds[kind], f, value) for n, (who, kind, f, value) in enumerate(lines)]


def op(process, f, value, kind="+"):
    asked = value
    if f in {"send", "poll", "txn"}:
        asked = [
            [m[0], m[1], m[2][1] if isinstance(m[2], list) else m[2]] if m[0] == "send" else m[:1]
            for m in value
            if m[0] != "rebalance"
        ]
    return (process, "!", f, asked), (process, kind, f, value)


def send(process, *mops, kind="+", f="send"):
    return op(process, f, [sent(*mop) for mop in mops], kind)


def poll(process, kind="+", f="poll", **messages):
    return op(process, f, [polled(**messages)], kind)


def rules_of(ops):
    result, drawn = judged_by("kafka", ops)
    assert (drawn is not None) is (result.verdict is INVALID)
    return result, set(result.details["by_invariant"])


AB = (*send(0, ("x", 0, 1)), *send(0, ("x", 3, 2)))
SHOWN = poll(1, x=[(0, 1), (3, 2)])
BOTH = ("txn", [sent("x", 0, 1), polled(y=[(0, 2)])])
EMPTY = tuple(itertools.chain.from_iterable(poll(7) for _ in range(EMPTY_POLLS)))
ASSIGN, SUBSCRIBE = op(1, "assign", ["x"]), op(1, "subscribe", ["x"])
CASES = {
    "all is shown": ((*AB, *SHOWN), set()),
    "two messages of an offset": ((*send(0, ("x", 0, 1)), *send(2, ("x", 0, 2)),
        *poll(1, x=[(0, 1)]), *poll(3, x=[(0, 2)])), {"inconsistent-offsets"}),
    "a send of unknown outcome proves no offset": ((
        *send(0, ("x", 0, 1), kind="?"), *send(2, ("x", 0, 2)), *poll(1, x=[(0, 2)])), set()),
    "it does once one of its messages is shown": ((
        *send(0, ("x", 0, 1), ("y", 5, 3), kind="?"), *send(2, ("x", 0, 2)),
        *poll(1, x=[(0, 2)], y=[(5, 3)])), {"inconsistent-offsets"}),
    "two offsets of a message": ((*send(0, ("x", 0, 1)), *poll(1, x=[(1, 1)])), {"duplicate"}),
    "a failed poll counts": ((*send(0, ("x", 1, 0)), *send(2, ("x", 2, 1), kind="-"),
        *poll(1, "-", x=[(11, 0), (12, 1)])), {"duplicate"}),
    "a failed send": ((*send(0, ("x", 0, 1), kind="-"), *poll(1, x=[(0, 1)])), {"G1a"}),
    "never sent": ((*AB, *poll(1, x=[(0, 1), (3, 2), (4, 9)])), {"unexpected"}),
    "sent later": ((*poll(1, x=[(0, 1)]), *send(0, ("x", 0, 1))), {"unexpected"}),
    "its own message": ((*op(0, "txn", [sent("x", 0, 1), polled(x=[(0, 1)])]),),
        {"precommitted-read"}),
    "a lost message": ((*AB, *poll(1, x=[(3, 2)])), {"lost-write"}),
    "a lost message of unknown outcome": ((*send(0, ("x", 0, 1), kind="?"), *send(2, ("x", 3, 2)),
        *poll(1, x=[(3, 2)])), set()),
    "the same, but another message of it is shown": ((
        *send(0, ("x", 0, 1), ("y", 0, 3), kind="?"), *send(2, ("x", 3, 2)),
        *poll(1, x=[(3, 2)], y=[(0, 3)])), {"lost-write"}),
    "another process polled it": ((*AB, *poll(1, x=[(3, 2)]), *poll(2, x=[(0, 1), (3, 2)])),
        set()),
    "a poll without an answer may have consumed it": ((*AB, *SUBSCRIBE,
        (1, "!", "poll", [["poll"]]), (1, "?", "poll", None),
        *op(2, "subscribe", ["x"]), *poll(2, x=[(3, 2)])), set()),
    "but not before it was sent": ((*SUBSCRIBE, (1, "!", "poll", [["poll"]]),
        (1, "?", "poll", None), *AB, *op(2, "subscribe", ["x"]), *poll(2, x=[(3, 2)])),
        {"lost-write"}),
    "nor for who assigns": ((*AB, (1, "!", "poll", [["poll"]]), (1, "?", "poll", None),
        *poll(2, x=[(3, 2)])), {"lost-write"}),
    "a skip": ((*AB, *send(0, ("x", 4, 3)), *ASSIGN, *poll(1, x=[(0, 1)]), *poll(1, x=[(4, 3)]),
        *poll(2, x=[(0, 1), (3, 2), (4, 3)])), {"poll-skip"}),
    "a skip by a subscriber": ((*AB, *send(0, ("x", 4, 3)), *SUBSCRIBE, *poll(1, x=[(0, 1)]),
        *poll(1, x=[(4, 3)]), *poll(2, x=[(0, 1), (3, 2), (4, 3)])), set()),
    "a skip after another assignment": ((*AB, *send(0, ("x", 4, 3)), *poll(1, x=[(0, 1)]),
        *op(1, "assign", ["y"]), *ASSIGN, *poll(1, x=[(4, 3)]),
        *poll(2, x=[(0, 1), (3, 2), (4, 3)])), set()),
    "a step back": ((*AB, *SHOWN, *poll(1, x=[(3, 2)])), {"nonmonotonic-poll"}),
    "a seek to the beginning": ((*AB, *SHOWN,
        *op(1, "assign", {"keys": ["x"], "from_start": True}), *SHOWN), set()),
    "a poll that failed is rolled back": ((*AB, *poll(1, "-", x=[(0, 1)]), *SHOWN), set()),
    "a skip within an operation": ((*AB, *send(0, ("x", 4, 3)), *poll(1, x=[(0, 1), (4, 3)]),
        *poll(2, x=[(0, 1), (3, 2), (4, 3)])), {"int-poll-skip"}),
    "a skip within an operation that lost the key": ((*AB, *send(0, ("x", 4, 3)),
        *op(1, "poll", [polled(x=[(0, 1), (4, 3)]), ["rebalance", ["x"]]]),
        *poll(2, x=[(0, 1), (3, 2), (4, 3)])), set()),
    "a step back within an operation": ((*AB, *poll(1, x=[(3, 2), (0, 1)])),
        {"int-nonmonotonic-poll"}),
    "sends back": ((*send(0, ("x", 5, 1)), *send(0, ("x", 2, 2)), *poll(1, x=[(2, 2), (5, 1)])),
        {"nonmonotonic-send"}),
    "sends back within an operation": ((*send(0, ("x", 5, 1), ("x", 2, 2)),
        *poll(1, x=[(2, 2), (5, 1)])), {"int-nonmonotonic-send"}),
    "a cycle of reads": (((0, "!", "txn", [["send", "x", 1], ["poll"]]),
        (1, "!", "txn", [["send", "y", 2], ["poll"]]),
        (0, "+", "txn", [sent("x", 0, 1), polled(y=[(0, 2)])]),
        (1, "+", "txn", [sent("y", 0, 2), polled(x=[(0, 1)])])), {"G1c"}),
    "a chain of reads into the past": (((0, "!", "txn", [["send", "y", 2], ["poll"]]),
        *poll(2, y=[(0, 2)]), (1, "!", "send", [["send", "x", 1]]),
        (1, "+", "send", [sent("x", 0, 1)]),
        (0, "+", "txn", [sent("y", 0, 2), polled(x=[(0, 1)])])), {"G1c"}),
    "unseen": ((*AB, *SHOWN, *send(0, ("x", 4, 3)), *op(7, "assign", ["x"]), *EMPTY), {"unseen"}),
    "unseen, but with one poll too few": (
        (*AB, *SHOWN, *send(0, ("x", 4, 3)), *op(7, "assign", ["x"]), *EMPTY[2:]), None),
    "unseen, and never read to the end": ((*AB, *SHOWN, *send(0, ("x", 4, 3)), *EMPTY), None),
    "unseen, and assigned too early": ((*AB, *SHOWN, *op(7, "assign", ["x"]),
        *send(0, ("x", 4, 3)), *EMPTY), None),
    "unseen, and another key was assigned": ((*AB, *SHOWN, *send(0, ("x", 4, 3)),
        *op(7, "assign", ["y"]), *EMPTY), None),
    "nothing is polled": ((*send(0, ("x", 0, 1), kind="?"),), None),
    "a message is sent twice": ((*AB, *send(2, ("x", 4, 1)), *poll(1, x=[(0, 1), (3, 2), (4, 1)])),
        None),
    "keys are numbers": (((0, "!", "send", [["send", 1, 5]]), (0, "+", "send", [sent(1, 0, 5)]),
        (1, "!", "poll", [["poll"]]), (1, "+", "poll", [["poll", {"1": [[0, 5]]}]])), set()),
    "keys are keywords": (((0, "!", "send", [[":send", ":x", 5]]),
        (0, "+", "send", [[":send", ":x", [0, 5]]]),
        (1, "!", "poll", [[":poll"]]), (1, "+", "poll", [[":poll", {"x": [[0, 5]]}]])), set()),
    "crashes mean nothing": ((*AB, *op(0, "crash", None, "?"), *SHOWN), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_rule(name):
    lines, rules = CASES[name]
    result, found = rules_of(history(*lines))
    if rules is None:
        assert (result.verdict, found) == (UNKNOWN, set())
        return
    assert found == rules, result
    assert result.verdict is (INVALID if rules else VALID), result
    assert not rules or result.operations


@pytest.mark.parametrize(
    "text",
    [
        "0! enqueue 1",
        "0! send",
        "0! send [['send', 'x']]",
        "0! send [['send', 'x', [1, 2, 3]]]",
        "0! poll [['poll', [[0, 1]]]]",
        "0! poll; 0+ poll",
        "0! poll [['poll']]; 0+ poll [['poll', {'x': [[-1, 1]]}]]",
        "0! poll [['poll']]; 0+ poll [['poll', {'x': [['a', 1]]}]]",
        "0! assign 3",
        "0! send [['send', 'x', 1]]; 0+ send [['send', 'x', [0, 2]]]",
        "0! send [['send', '1', 1], ['send', 1, 1]]",
    ],
)
def test_values_outside_of_the_vocabulary_are_refused(text):
    with pytest.raises(HistoryError, match=r"^op \d "):
        judged_by("kafka", parsed(text))


def test_options_of_other_models_are_refused():
    for settings in ({"initial": 0}, {"independent": True}, {"linearizable_keys": True}):
        with pytest.raises(UsageError):
            judged_by("kafka", history(*AB, *SHOWN), **settings)


SENT = (
    "0 :type :invoke :f :send :value [[:send :x 1] [:send :x 2] [:send :x 3]]",
    "0 :type :ok :f :send :value [[:send :x [0 1]] [:send :x [1 2]] [:send :x [2 3]]]",
    "1 :type :invoke :f :assign :value [:x]",
    "1 :type :ok :f :assign :value [:x]",
    "1 :type :invoke :f :poll :value [[:poll]]",
    "1 :type :ok :f :poll :value [[:poll {:x [[0 1] [1 2] [2 3]]}]]",
)
AGAIN = (
    "1 :type :invoke :f :assign :value [:x]",
    "1 :type :ok :f :assign :value [:x]",
    "1 :type :invoke :f :poll :value [[:poll]]",
    "1 :type :ok :f :poll :value [[:poll {:x [[0 1] [2 3]]}]]",
)


@pytest.mark.parametrize(
    ("seek", "rebalance", "rules"),
    [
        ("", "", {"nonmonotonic-poll", "int-poll-skip"}),
        (" :seek-to-beginning? true", "", {"int-poll-skip"}),
        (" :seek-to-beginning? true", " :rebalance-log [{:keys [:y]} {:keys [:x]}]", set()),
        (" :seek-to-beginning? true", " :rebalance-log [{:keys [:y]}]", {"int-poll-skip"}),
    ],
)
def test_jepsens_fields_of_ops_are_read(seek, rebalance, rules, tmp_path):
    again = [line + seek if ":assign" in line else line for line in AGAIN]
    again[-1] += rebalance
    path = tmp_path / "history.edn"
    path.write_text("\n".join(f"{{:process {line}}}" for line in (*SENT, *again)))
    assert rules_of(load_edn(path))[1] == rules


# --- random histories of a log store -------------------------------------------------------------

BUGS = {
    "lose": {"lost-write", "unseen", "int-poll-skip", "poll-skip"},
    "double": {"duplicate"},
    "overwrite": {"inconsistent-offsets"},
    "show-failed": {"G1a"},
    "insert": {"nonmonotonic-send", "int-nonmonotonic-send", "poll-skip"},
    "skip": {"poll-skip", "int-poll-skip", "lost-write"},
    "rewind": {"nonmonotonic-poll"},
    "swap": {"int-nonmonotonic-poll", "poll-skip"},
    "invent": {"unexpected"},
    "early": {"precommitted-read"},
    "fracture": {"G1c"},
}


class World:
    """A correct store of two logs, and the position of each consumer in each log."""

    def __init__(self, rng, bug=None):
        self.rng, self.bug = rng, bug
        self.logs = {key: [] for key in KEYS}  # offset and message
        self.next = dict.fromkeys(KEYS, 0)
        self.at = {}  # process -> key -> offset
        self.fresh = itertools.count(1)

    def broken(self, bug):
        return self.bug == bug and self.rng.random() < 0.4

    def request(self, process):
        if process not in self.at or self.rng.random() < 0.06:
            return "assign", self.rng.choice([["x"], ["y"], ["x", "y"]])
        f = self.rng.choice(["send", "poll", "txn"])
        mops = []
        for _ in range(self.rng.randint(1, 2 if f != "txn" else 3)):
            if f == "poll" or (f == "txn" and self.rng.random() < 0.5):
                mops.append(["poll"])
            else:
                mops.append(["send", self.rng.choice(KEYS), next(self.fresh)])
        return f, mops

    def act(self, process, f, value, *, commits):
        if f == "assign":
            before = self.at.get(process, {})
            self.at[process] = {key: before.get(key, 0) for key in value}
            return value
        before = dict(self.at.get(process, {}))
        answer, pending = [], []
        for mop in value:
            if mop[0] == "send":
                pending.append((mop[1], mop[2]))
                answer.append(mop)
            else:
                answer.append(["poll", self._poll(process, pending)])
        if commits or self.broken("show-failed"):
            placed = [self._append(key, message) for key, message in pending]
            offsets = iter(placed)
            answer = [
                ["send", m[1], [next(offsets), m[2]]] if m[0] == "send" else m for m in answer
            ]
        if not commits:
            self.at[process] = before
        return answer

    def _append(self, key, message):
        log, offset = self.logs[key], self.next[key]
        self.next[key] += self.rng.choice([1, 1, 2])
        if self.broken("lose"):
            return offset
        if log and self.broken("overwrite"):
            offset = log[-1][0]
            self.logs[key] = log[:-1]
        if len(log) > 1 and self.broken("insert"):
            below = [n for n in range(log[-1][0]) if n not in dict(log)]
            offset = self.rng.choice(below) if below else offset
        self.logs[key] = sorted([*self.logs[key], (offset, message)])
        if self.broken("double"):
            self.logs[key].append((self.next[key], message))
            self.next[key] += 1
        return offset

    def _poll(self, process, pending):
        answer = {}
        for key, position in self.at.get(process, {}).items():
            at = 0 if self.broken("rewind") else position
            new = [each for each in self.logs[key] if each[0] >= at]
            new = new[: self.rng.choice([0, 1, 2, 5])]
            if self.broken("skip"):
                new = new[1:]
            if new:
                self.at[process][key] = new[-1][0] + 1
            if self.broken("swap"):
                new = new[::-1]
            if self.broken("invent"):
                new = [*new, (self.next[key] + 50, 10**6)]
            if self.broken("early"):
                new = [*new, *((None, message) for where, message in pending if where == key)]
            if new or self.rng.random() < 0.5:
                answer[key] = [list(each) for each in new]
        return answer


def generated(rng, bug=None):
    world, lines, open_ = World(rng, bug), [], {}
    clients, spare = [0, 1, 2], 3
    for _ in range(rng.randint(12, 40)):
        slot = rng.randrange(3)
        who = clients[slot]
        if who not in open_:
            f, asked = world.request(who)
            kind = rng.choices("+?-", [8, 1, 1])[0]
            early = rng.random() < 0.5
            happens = kind == "+" or (kind == "?" and rng.random() < 0.5)
            if bug == "fracture" and f == "txn" and kind == "+":
                # The bug: messages become visible at once, but the transaction's polls happen at
                # its end.
                asked = sorted(asked, reverse=True)
                world.act(who, f, [m for m in asked if m[0] == "send"], commits=True)
                early = False
            done = world.act(who, f, asked, commits=happens) if early else None
            open_[who] = (f, asked, kind, happens, done)
            lines.append((who, "!", f, asked))
            continue
        f, asked, kind, happens, done = open_.pop(who)
        if done is None and bug == "fracture" and f == "txn" and kind == "+":
            polls = world.act(who, f, [m for m in asked if m[0] == "poll"], commits=True)
            done = [m for m in asked if m[0] == "send"] + polls
        elif done is None:
            done = world.act(who, f, asked, commits=happens)
        if kind != "+" and not (f == "poll" and rng.random() < 0.5):
            done = None if kind == "?" else asked
        lines.append((who, kind, f, done))
        if kind == "?":
            clients[slot], spare = spare, spare + 1
    for who in open_:
        world.at.pop(who, None)
    if rng.random() < 0.7:
        lines += op(99, "assign", world.act(99, "assign", list(KEYS), commits=True))
        for _ in range(EMPTY_POLLS + 4):
            done = world.act(99, "poll", [["poll"]], commits=True)
            lines += [(99, "!", "poll", [["poll"]]), (99, "+", "poll", done)]
    return history(*lines)


# --- the rules again, without their shortcuts ----------------------------------------------------


class Said:
    """One operation, in the form that the naive rules use."""

    def __init__(self, call, done):
        self.f, self.who, self.begin = call.f, call.process, call.index
        self.type = OpType.INFO if done is None else done.type
        self.end = inf if self.type is OpType.INFO else done.index
        value = call.value if done is None or done.value is None else done.value
        self.keys = value
        mops = value if call.f in {"send", "poll", "txn"} else []
        self.sends = [
            (m[1], *(m[2] if isinstance(m[2], list) else (None, m[2])))
            for m in mops
            if m[0] == "send"
        ]
        self.polls = [
            (key, *place)
            for m in mops
            if m[0] == "poll" and len(m) > 1
            for key, places in m[1].items()
            for place in places
        ]
        self.ok = self.type is OpType.OK


def naive(ops):
    """Return the names of all broken rules, for a history without subscribers."""
    calls, said = {}, []
    for each in ops:
        if each.type is OpType.INVOKE:
            calls[each.process] = each
        else:
            said.append(Said(calls.pop(each.process), each))
    said += [Said(call, None) for call in calls.values()]
    said.sort(key=lambda s: s.begin)
    broken = set()
    senders = {(k, m): s for s in said for k, _, m in s.sends}
    readers = [(k, o, m, s) for s in said for k, o, m in s.polls]
    shown = {(k, m) for k, _, m, s in readers if s.ok}
    committed = [
        s for s in said
        if s.ok or (s.type is OpType.INFO and any((k, m) in shown for k, _, m in s.sends))
    ]  # fmt: skip
    places = {(k, o, m) for k, o, m, _ in readers if o is not None}
    places |= {(k, o, m) for s in committed for k, o, m in s.sends if o is not None}
    for (k1, o1, m1), (k2, o2, m2) in itertools.permutations(places, 2):
        if k1 == k2 and o1 == o2 and m1 != m2:
            broken.add("inconsistent-offsets")
        if k1 == k2 and o1 != o2 and m1 == m2:
            broken.add("duplicate")
    for k, _, m, s in readers:
        sender = senders.get((k, m))
        if sender is None or sender.begin > s.end:
            broken.add("unexpected")
        elif s.ok and sender.type is OpType.FAIL:
            broken.add("G1a")
        if sender is s:
            broken.add("precommitted-read")
    offsets_of = {key: sorted({o for k, o, _ in places if k == key}) for key in KEYS}

    def index(key, message):
        mine = [(o, m) for k, o, m in places if k == key and m == message]
        if len(mine) != 1 or sum((k, o) == (key, mine[0][0]) for k, o, _ in places) != 1:
            return None
        return offsets_of[key].index(mine[0][0])

    def steps(name, prefix, chain):
        for (k1, m1), (_, m2) in itertools.pairwise(chain):
            one, two = index(k1, m1), index(k1, m2)
            if one is not None and two is not None:
                if two <= one:
                    broken.add(f"{prefix}nonmonotonic-{name}")
                elif two > one + 1 and name == "poll":
                    broken.add(f"{prefix}poll-skip")

    for key in KEYS:
        for s in said:
            steps("poll", "int-", [(k, m) for k, _, m in s.polls if k == key])
            if s.type is not OpType.FAIL:
                steps("send", "int-", [(k, m) for k, _, m in s.sends if k == key])
        for who in {s.who for s in said}:
            at = sent_before = None
            for s in (s for s in said if s.who == who):
                if s.f == "assign" and s.type is not OpType.FAIL and key not in s.keys:
                    at = None
                here = [(k, m) for k, _, m in s.polls if k == key]
                if here:
                    steps("poll", "", [at, here[0]] if at else [])
                    at = here[-1] if s.ok else at
                here = [(k, m) for k, _, m in s.sends if k == key]
                if here and s.type is not OpType.FAIL:
                    steps("send", "", [sent_before, here[0]] if sent_before else [])
                    sent_before = here[-1] if s.ok else sent_before
        tops = [
            min(o for k2, o, m2 in places if (k2, m2) == (k, m))
            for k, o, m, s in readers
            if k == key and s.ok and any((k2, m2) == (k, m) for k2, _, m2 in places)
        ]
        for s in said:
            for k, _, m in s.sends:
                if k != key or any((k, m) == (k2, m2) for k2, _, m2, _ in readers):
                    continue
                mine = [o for k2, o, m2 in places if (k2, m2) == (k, m)]
                if s in committed and mine and max(mine) < max(tops, default=-1):
                    broken.add("lost-write")
                elif s.ok and read_to_end(said, s, key):
                    broken.add("unseen")
    if cyclic(said, senders, readers):
        broken.add("G1c")
    return broken


def read_to_end(said, sender, key):
    for n, s in enumerate(said):
        if s.f == "assign" and s.ok and key in s.keys and s.begin > sender.end:
            after = [t for t in said[n + 1 :] if t.who == s.who]
            until = (
                [t.f for t in after].index("assign")
                if any(t.f == "assign" for t in after)
                else None
            )
            polls = [t for t in after[:until] if t.f != "send" and t.ok and polls_in(t)]
            empty = [not any(k == key for k, _, _ in t.polls) for t in polls]
            if any(all(empty[at : at + EMPTY_POLLS]) for at in range(len(empty) - EMPTY_POLLS + 1)):
                return True
    return False


def polls_in(said):
    return any(mop[0] == "poll" for mop in said.keys)


def cyclic(said, senders, readers):
    """Whether messages and real time order some operation before itself (transitive closure)."""
    read = {
        (senders[(k, m)].begin, s.begin)
        for k, _, m, s in readers
        if (k, m) in senders
        and senders[(k, m)].type is not OpType.FAIL
        and senders[(k, m)] is not s
        and senders[(k, m)].begin < s.end
    }
    before = read | {(a.begin, b.begin) for a in said for b in said if a.end < b.begin}
    nodes = [s.begin for s in said]
    for middle in nodes:
        before |= {
            (a, b) for a in nodes if (a, middle) in before for b in nodes if (middle, b) in before
        }
    return any((node, node) in before for node in nodes)


def agree(seed, bug):
    ops = generated(random.Random(seed), bug)
    result, rules = rules_of(ops)
    assert rules == naive(ops), (seed, ops)
    return result.verdict, rules


def test_random_histories_agree_with_the_naive_rules():
    verdicts = Counter(agree(seed, None)[0] for seed in range(60))
    assert verdicts[INVALID] == 0
    assert verdicts[VALID] > 15
    found = Counter()
    for seed, bug in zip(range(60), itertools.cycle(BUGS), strict=False):
        found.update(agree(seed, bug)[1])
    assert len(found) >= 10


@pytest.mark.slow
def test_more_random_histories_agree_with_the_naive_rules():
    verdicts = Counter(agree(seed, None)[0] for seed in range(1000, 1000 + SEEDS))
    assert verdicts[INVALID] == 0
    assert verdicts[VALID] > SEEDS / 4
    for bug, rules in BUGS.items():
        found = Counter()
        for seed in range(1000, 1000 + SEEDS // 4):
            found.update(agree(seed, bug)[1])
        assert rules <= set(found), (bug, found)
