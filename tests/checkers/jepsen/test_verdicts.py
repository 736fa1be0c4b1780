"""Good, bad and mutated histories of models after Jepsen's: broken rules, blamed operations."""

import pytest

from harness.errors import HistoryError, UsageError
from harness.ops import Verdict
from harness.registry import load_plugin
from tests.support.histories import judged_by, parsed

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
ADDED = "0! add 1; 0+ add 1"
FULL = ("set-full", "set-full-linearizable", "set-final")
UNREAD = "nothing-observed"

# model, history, verdict, rule, operations
SETS = [
    *((model, f"{ADDED}; 1! read; 1+ read [1]", VALID, None, ()) for model in FULL),
    *((model, f"{ADDED}; 1! read; 1+ read {{'#{{}}': [1]}}", VALID, None, ()) for model in FULL),
    *((model, f"{ADDED}; 1! read; 1+ read []", INVALID, "lost", (0, 2)) for model in FULL),
    *((model, ADDED, UNKNOWN, UNREAD, ()) for model in FULL),
    *((model, f"{ADDED}; 1! read; 1? read", UNKNOWN, UNREAD, ()) for model in FULL),
    *((model, f"{ADDED}; 1! read; 1- read", UNKNOWN, UNREAD, ()) for model in FULL),
    *((model, "1! read; 1+ read []", UNKNOWN, UNREAD, ()) for model in FULL),
    # Elements that no client added, whose add failed, or that were added only later.
    *((m, f"{ADDED}; 1! read; 1+ read [1, 2]", INVALID, "unexpected", (2,)) for m in FULL),
    *((m, f"{ADDED}; 1! read; 1+ read [1, True]", INVALID, "unexpected", (2,)) for m in FULL),
    *(
        (m, f"0! add 2; 0- add 2; {ADDED}; 1! read; 1+ read [1, 2]", INVALID, "unexpected", (4, 0))
        for m in FULL
    ),
    *(
        (m, f"{ADDED}; 1! read; 1+ read [1, 2]; 0! add 2; 0+ add 2", INVALID, "unexpected", (2, 4))
        for m in FULL
    ),
    *(
        (
            m,
            f"0! add 2; 0- add 2; 0! add 2; 0+ add 2; {ADDED}; 1! read; 1+ read [1, 2]",
            VALID,
            None,
            (),
        )
        for m in FULL
    ),
    *((m, f"{ADDED}; 1! read; 1+ read [1, 1]", INVALID, "duplicated", (2,)) for m in FULL),
    # The element of an add of unknown outcome may be present or absent, but must not come and go.
    *((m, f"{ADDED}; 2! add 2; 2? add 2; 1! read; 1+ read [1]", VALID, None, ()) for m in FULL),
    *((m, f"{ADDED}; 2! add 2; 2? add 2; 1! read; 1+ read [1, 2]", VALID, None, ()) for m in FULL),
    *(
        (
            m,
            f"{ADDED}; 2! add 2; 2? add 2; 1! read; 1+ read [1, 2]; 1! read; 1+ read [1]",
            INVALID,
            "lost",
            (4, 6),
        )
        for m in FULL[:2]
    ),
    # A read that overlaps the add may miss the element.
    *((m, "0! add 1; 1! read; 0+ add 1; 1+ read []", UNKNOWN, UNREAD, ()) for m in FULL),
    *(
        (m, "0! add 1; 1! read; 1+ read []; 0+ add 1; 1! read; 1+ read [1]", VALID, None, ())
        for m in FULL
    ),
    # ... but once a read has shown it, no later read may miss it.
    (
        "set-full-linearizable",
        "0! add 1; 1! read; 1+ read [1]; 1! read; 1+ read []; 0+ add 1; 1! read; 1+ read [1]",
        INVALID,
        "stale",
        (1, 3),
    ),
    (
        "set-full-linearizable",
        f"{ADDED}; 1! read; 1+ read []; 1! read; 1+ read [1]",
        INVALID,
        "stale",
        (0, 2),
    ),
    ("set-full", f"{ADDED}; 1! read; 1+ read []; 1! read; 1+ read [1]", VALID, None, ()),
    ("set-final", f"{ADDED}; 1! read; 1+ read []; 1! read; 1+ read [1]", VALID, None, ()),
    ("set-full", f"{ADDED}; 1! read; 1+ read [1]; 1! read; 1+ read []", INVALID, "lost", (0, 4)),
    ("set-final", f"{ADDED}; 1! read; 1+ read [1]; 1! read; 1+ read []", INVALID, "lost", (0, 4)),
    # most elements were never read
    (
        "set-full",
        f"{ADDED}; 1! read; 1+ read [1]; 0! add 2; 0+ add 2; 0! add 3; 0+ add 3",
        VALID,
        None,
        (),
    ),
]
KEY_7 = "0! add [7, 1]; 0+ add [7, 1]; 1! read [7, None]; 1+ read [7, 1]"
COUNTERS = [
    ("counter", "0! add 1; 0+ add 1; 1! read; 1+ read 1", VALID, None, ()),
    ("counter", "1! read; 1+ read 0", VALID, None, ()),
    ("counter", "1! read; 1+ read 1", INVALID, "above", (0,)),
    ("counter", "0! add 5; 0+ add 5; 1! read; 1+ read 4", INVALID, "below", (2, 0)),
    ("counter", "0! add 5; 0+ add 5; 1! read; 1+ read 6", INVALID, "above", (2,)),
    ("counter", "0! add 5; 0- add 5; 1! read; 1+ read 5", INVALID, "above", (2,)),
    ("counter", "0! add 5; 0? add 5; 1! read; 1+ read 5; 1! read; 1+ read 0", VALID, None, ()),
    ("counter", "0! add 5; 1! read; 1+ read 3; 0+ add 5", INVALID, "unreachable", (1, 0)),
    ("counter", "0! add 5; 2! add 2; 1! read; 1+ read 2", VALID, None, ()),
    ("counter", "1! read; 1+ read 5; 0! add 5; 0+ add 5", INVALID, "above", (0,)),
    ("counter", "0! add -5; 0+ add -5; 1! read; 1+ read -5", VALID, None, ()),
    ("counter", "0! add -5; 0+ add -5; 1! read; 1+ read 0", INVALID, "above", (2, 0)),
    ("counter", "0! add -5; 2! add 3; 1! read; 1+ read -2", VALID, None, ()),
    ("counter", "0! add -5; 2! add 3; 1! read; 1+ read -1", INVALID, "unreachable", (2, 0, 1)),
    ("counter", "0! add -5; 1! read; 1+ read -6", INVALID, "below", (1,)),
    ("counter", "0! add 1; 0+ add 1", UNKNOWN, UNREAD, ()),
    ("counter", "0! add 1; 0+ add 1; 1! read; 1? read", UNKNOWN, UNREAD, ()),
    (
        "counter",  # blames the certain adds beyond the read value, the largest first
        "0! add 1; 0+ add 1; 0! add 9; 0+ add 9; 0! add 2; 0+ add 2; 1! read; 1+ read 3",
        INVALID,
        "below",
        (6, 2),
    ),
    ("counter", KEY_7, VALID, None, ()),
    (
        "counter",
        f"{KEY_7}; 0! add [8, 1]; 0+ add [8, 1]; 1! read [8, None]; 1+ read [8, 0]",
        INVALID,
        "below",
        (6, 4),
    ),
]
MOVED = (
    "0! transfer {'from': 0, 'to': 1, 'amount': 5}; 0+ transfer {'from': 0, 'to': 1, 'amount': 5}"
)
SEEN = "1! read; 1+ read {'0': 5, '1': 15}"
BANKS = [
    ("bank", f"1! read; 1+ read {{'0': 10, '1': 10}}; {MOVED}; {SEEN}", VALID, None, ()),
    ("bank", f"1! read; 1+ read [[0, 10], [1, 10]]; {MOVED}; {SEEN}", VALID, None, ()),
    (
        "bank",
        f"{MOVED}; {SEEN}; {SEEN}; 1! read; 1+ read {{'0': 5, '1': 10}}",
        INVALID,
        "wrong-total",
        (6, 2),
    ),
    ("bank", f"{MOVED}; {SEEN}", UNKNOWN, UNREAD, ()),  # one read cannot be wrong
    ("bank", f"{SEEN}; {SEEN}", UNKNOWN, UNREAD, ()),  # nothing moved
    ("bank", MOVED, UNKNOWN, UNREAD, ()),
    ("bank", f"{MOVED}; 1! read; 1? read", UNKNOWN, UNREAD, ()),
    (
        "bank",
        f"{MOVED}; {SEEN}; 1! read; 1+ read {{'0': -1, '1': 21}}",
        INVALID,
        "negative-balance",
        (4,),
    ),
    ("bank-overdraft", f"{MOVED}; {SEEN}; 1! read; 1+ read {{'0': -1, '1': 21}}", VALID, None, ()),
    (
        "bank-overdraft",
        f"{MOVED}; {SEEN}; {SEEN}; 1! read; 1+ read {{'0': -1, '1': 20}}",
        INVALID,
        "wrong-total",
        (6, 2),
    ),
    (
        "bank",
        f"{MOVED}; {SEEN}; {SEEN}; 1! read; 1+ read {{'0': 20, '1': None}}",
        INVALID,
        "no-balance",
        (6,),
    ),
]
QUEUES = ("total-queue", "at-least-once-queue")
IN = "0! enq 1; 0+ enq 1; 0! enq 2; 0+ enq 2"
DRAINED = "9! drain; 9+ drain"
ELEMENTS = [
    *((model, f"{IN}; {DRAINED} [2, 1]", VALID, None, ()) for model in QUEUES),
    *((model, f"{IN}; 1! deq; 1+ deq 2; {DRAINED} [1]", VALID, None, ()) for model in QUEUES),
    *((model, f"{IN}; {DRAINED} [1]", INVALID, "lost", (2, 4)) for model in QUEUES),
    *((model, f"{IN}; {DRAINED} []", INVALID, "lost", (0, 4, 2)) for model in QUEUES),
    *((m, f"{IN}; 1! deq; 1+ deq 1; 1! deq; 1+ deq", INVALID, "lost", (2, 6)) for m in QUEUES),
    *((model, f"{IN}; 1! deq; 1+ deq 1", UNKNOWN, UNREAD, ()) for model in QUEUES),
    *((model, f"{DRAINED} []", UNKNOWN, None, ()) for model in QUEUES),
    *((m, f"{IN}; {DRAINED} [1, 2, 3]", INVALID, "unexpected", (4,)) for m in QUEUES),
    *(
        (m, f"{IN}; 0! enq 3; 0- enq 3; {DRAINED} [1, 2, 3]", INVALID, "unexpected", (6, 4))
        for m in QUEUES
    ),
    *((m, f"1! deq; 1+ deq 1; {IN}; {DRAINED} [2]", INVALID, "unexpected", (0, 2)) for m in QUEUES),
    ("total-queue", f"{IN}; 1! deq; 1+ deq 1; {DRAINED} [1, 2]", INVALID, "duplicated", (4, 6)),
    ("at-least-once-queue", f"{IN}; 1! deq; 1+ deq 1; {DRAINED} [1, 2]", VALID, None, ()),
    ("total-queue", f"{IN}; 0! enq 1; 0? enq 1; {DRAINED} [1, 2, 1]", VALID, None, ()),
    # unknown outcomes
    *((m, f"{IN}; 0! enq 3; 0? enq 3; {DRAINED} [1, 2]", VALID, None, ()) for m in QUEUES),
    *((m, f"{IN}; 0! enq 3; 0? enq 3; {DRAINED} [1, 2, 3]", VALID, None, ()) for m in QUEUES),
    *((m, f"{IN}; 1! deq; 1? deq; {DRAINED} [1]", VALID, None, ()) for m in QUEUES),
    *((m, f"{IN}; 1! deq; 1? deq; {DRAINED} []", INVALID, "lost", (0, 6, 2)) for m in QUEUES),
    *((m, f"{IN}; {DRAINED} [1]; 1! deq; 1? deq", INVALID, "lost", (2, 4)) for m in QUEUES),
    *((m, f"{IN}; 1! drain; 1? drain; {DRAINED} []", UNKNOWN, "exempt", ()) for m in QUEUES),
    *((m, f"{IN}; 1! drain; 1? drain [1]; {DRAINED} [2]", VALID, None, ()) for m in QUEUES),
    # An enqueue after the drain is not judged.
    *((m, f"{IN}; {DRAINED} [1, 2]; 0! enq 3; 0+ enq 3", VALID, None, ()) for m in QUEUES),
]
IDS = [
    ("unique-ids", "0! generate; 0+ generate 1; 0! generate; 0+ generate 2", VALID, None, ()),
    ("unique-ids", "0! generate; 0+ generate 1; 0! generate; 0+ generate '1'", VALID, None, ()),
    (
        "unique-ids",
        "0! generate; 0+ generate 1; 1! generate; 1+ generate 2; 0! generate; 0+ generate 1",
        INVALID,
        "duplicate-id",
        (0, 4),
    ),
    ("unique-ids", "0! generate; 0+ generate 1; 1! generate; 1? generate 1", UNKNOWN, UNREAD, ()),
    ("unique-ids", "0! generate; 0- generate", UNKNOWN, UNREAD, ()),
]


def write(process, key, done="+", value=1):
    mops = f"[['w', '{key}', {value}]]"
    return f"{process}! txn {mops}; {process}{done} txn {mops}"


def read(process, done="+", **seen):
    asked = [["r", key, None] for key in seen]
    answer = [["r", key, value] for key, value in seen.items()]
    return f"{process}! txn {asked}; {process}{done} txn {answer}"


LOST = f"{write(0, 'x', '?')}; {write(1, 'y', '?')}"
BOTH = f"{write(0, 'x')}; {write(1, 'y')}"
TWICE = f"{BOTH}; {write(0, 'x', value=2)}"
FORKS = [
    ("long-fork", f"{BOTH}; {read(2, x=1, y=None)}; {read(2, x=1, y=1)}", VALID, None, ()),
    (
        "long-fork",
        f"{BOTH}; {read(2, x=1, y=None)}; {read(3, x=None, y=1)}",
        INVALID,
        "fork",
        (4, 6),
    ),
    (
        "long-fork",  # the same fork, with other keys in between
        f"{BOTH}; {read(2, x=1, y=None, z=None)}; {read(3, y=1, x=None)}",
        INVALID,
        "fork",
        (4, 6),
    ),
    ("long-fork", f"{BOTH}; {read(2, x=1, y=None)}; {read(3, '?', x=None, y=1)}", VALID, None, ()),
    ("long-fork", f"{BOTH}; {read(2, x=1, y=1)}; {read(3, x=None, y=None)}", UNKNOWN, UNREAD, ()),
    ("long-fork", BOTH, UNKNOWN, UNREAD, ()),
    ("long-fork", f"{BOTH}; {read(2, x=2, y=None)}", INVALID, "unexpected", (4,)),
    ("long-fork", f"{write(0, 'x', '-')}; {read(2, x=1, y=None)}", INVALID, "unexpected", (2, 0)),
    ("long-fork", f"{read(2, x=1, y=None)}; {write(0, 'x')}", INVALID, "unexpected", (0, 2)),
    (
        "long-fork",  # lost writes that were seen
        f"{LOST}; {read(2, x=1, y=None)}; {read(3, x=None, y=1)}",
        INVALID,
        "fork",
        (4, 6),
    ),
    (
        "long-fork",  # x was written twice
        f"{TWICE}; {read(2, x=1, y=None)}; {read(3, x=None, y=1)}",
        UNKNOWN,
        "incomplete",
        (),
    ),
    (
        "long-fork",  # keys y and z still show a fork
        f"{TWICE}; {write(0, 'z')}; {read(2, y=1, z=None)}; {read(3, y=None, z=1)}",
        INVALID,
        "fork",
        (8, 10),
    ),
]
WROTE = "0! write 1; 0+ write 1; 0! write 2; 0+ write 2"
KEYED = WROTE.replace("1", "[7, 1]").replace("2", "[7, 2]")
CAUSES = [
    ("causal-reverse", f"{WROTE}; 1! read; 1+ read [1, 2]", VALID, None, ()),
    ("causal-reverse", f"{WROTE}; 1! read; 1+ read [2]", INVALID, "missing", (0, 2, 4)),
    (
        "causal-reverse",
        f"{WROTE.replace('write', 'add')}; 1! read; 1+ read [2]",
        INVALID,
        "missing",
        (0, 2, 4),
    ),
    ("causal-reverse", f"{WROTE}; 1! read; 1+ read [1]", UNKNOWN, UNREAD, ()),  # merely stale
    ("causal-reverse", f"{WROTE}; 1! read; 1+ read []", UNKNOWN, UNREAD, ()),
    ("causal-reverse", WROTE, UNKNOWN, UNREAD, ()),
    (
        "causal-reverse",  # at the same time
        "0! write 1; 2! write 2; 0+ write 1; 2+ write 2; 1! read; 1+ read [2]",
        UNKNOWN,
        UNREAD,
        (),
    ),
    (
        "causal-reverse",  # the first write may not have taken effect
        "0! write 1; 0? write 1; 2! write 2; 2+ write 2; 1! read; 1+ read [2]",
        UNKNOWN,
        UNREAD,
        (),
    ),
    (
        "causal-reverse",  # the second write did take effect, since a read saw it
        "0! write 1; 0+ write 1; 2! write 2; 2? write 2; 1! read; 1+ read [2]",
        INVALID,
        "missing",
        (0, 2, 4),
    ),
    ("causal-reverse", f"{WROTE}; 1! read; 1+ read [1, 2, 3]", INVALID, "unexpected", (4,)),
    (
        "causal-reverse",
        f"{WROTE}; 2! write 3; 2- write 3; 1! read; 1+ read [1, 2, 3]",
        INVALID,
        "unexpected",
        (6, 4),
    ),
    (
        "causal-reverse",  # 1 was written twice
        f"{WROTE}; 0! write 1; 0+ write 1; 1! read; 1+ read [2]",
        UNKNOWN,
        "incomplete",
        (),
    ),
    (
        "causal-reverse",
        f"{KEYED}; 1! read [7, None]; 1+ read [7, [2]]",
        INVALID,
        "missing",
        (0, 2, 4),
    ),
]
A, B = "insert [1, [7, None]]", "insert [1, [None, 8]]"
TWO = f"0! {A}; 1! {B}"
INSERTS = [
    ("g2", f"{TWO}; 0+ {A}; 1- {B}", VALID, None, ()),
    ("g2", f"{TWO}; 0+ {A}; 1+ {B}", INVALID, "g2", (0, 1)),
    (
        "g2",
        f"{TWO.replace('[1, [N', '[2, [N')}; 0+ {A}; 1+ insert [2, [None, 8]]",
        UNKNOWN,
        UNREAD,
        (),
    ),
    ("g2", f"{TWO}; 0+ {A}; 1? {B}", UNKNOWN, UNREAD, ()),
    ("g2", f"{TWO}; 0- {A}; 1- {B}", UNKNOWN, UNREAD, ()),
]
HELD = "0! acquire; 0+ acquire"
LOCKS = [
    ("owned-mutex", f"{HELD}; 0! release; 0+ release; 1! acquire; 1+ acquire", VALID, None, ()),
    ("owned-mutex", f"{HELD}; 1! acquire; 1+ acquire", INVALID, None, ()),
    ("owned-mutex", f"{HELD}; 1! release; 1+ release", INVALID, None, ()),
    ("mutex", f"{HELD}; 1! release; 1+ release", VALID, None, ()),
    ("owned-mutex", f"{HELD}; 1! acquire; 1- acquire; 0! release; 0+ release", VALID, None, ()),
    ("owned-mutex", f"{HELD}; 0! release; 0? release; 1! acquire; 1+ acquire", VALID, None, ()),
    ("owned-mutex", "0! acquire; 0? acquire; 1! acquire; 1+ acquire", VALID, None, ()),
    ("owned-mutex", "0! acquire; 0? acquire", UNKNOWN, UNREAD, ()),
]
CASES = [*SETS, *COUNTERS, *BANKS, *ELEMENTS, *IDS, *FORKS, *CAUSES, *INSERTS, *LOCKS]


@pytest.mark.parametrize(("model", "text", "verdict", "rule", "operations"), CASES)
def test_verdicts(model, text, verdict, rule, operations):
    result, drawn = judged_by(model, parsed(text))
    if verdict is VALID and rule is None:
        assert result.verdict is VALID, result
        assert result.reason
    assert (result.verdict is verdict) or rule == "exempt", result
    assert (drawn is not None) is (verdict is INVALID)
    if rule not in {None, "exempt"}:
        assert result.details["rule"] == rule, result
    if operations:
        assert result.operations == operations
        first = operations if result.details["violations"] == 1 else operations[:2]
        assert all(f"op {index}" in " ".join(result.explanation) for index in first)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *((model, "0! remove 1") for model in FULL),
        *((model, "0! add") for model in FULL),
        *((model, "0! read; 0+ read 3") for model in FULL),
        *((model, "0! read; 0+ read {'a': 1}") for model in FULL),
        ("counter", "0! add 'x'"),
        ("counter", "0! add True"),
        ("counter", "0! add 1.5"),
        ("counter", "0! read; 0+ read"),
        ("counter", "0! read; 0+ read [1]"),
        ("bank", "0! transfer {'from': 0, 'to': 1}"),
        ("bank", "0! transfer {'from': 0, 'to': 1, 'amount': '5'}"),
        ("bank", "0! read; 0+ read"),
        ("bank", "0! read; 0+ read {'0': 'x'}"),
        ("bank", "0! read; 0+ read [[0, 1], [0, 2]]"),
        ("bank", "0! read; 0+ read [1, 2]"),
        *((model, "0! enqueue") for model in QUEUES),
        *((model, "0! drain; 0+ drain 3") for model in QUEUES),
        *((model, "0! deq; 0+ drain [3]") for model in QUEUES),
        ("unique-ids", "0! generate; 0+ generate"),
        ("long-fork", "0! txn [['w', 'x', 1], ['w', 'y', 1]]"),
        ("long-fork", "0! txn [['w', 'x', 1], ['r', 'y', None]]"),
        ("long-fork", "0! txn [['append', 'x', 1]]"),
        ("long-fork", "0! txn [['r', 'x', None], ['r', 'x', None]]"),
        ("long-fork", "0! txn []"),
        ("causal-reverse", "0! write"),
        ("causal-reverse", "0! read; 0+ read 3"),
        ("g2", "0! insert 3"),
        ("g2", "0! insert [1, [2, 3]]"),
        ("g2", "0! insert [1, [None, None]]"),
        ("owned-mutex", "0! lock"),
    ],
)
def test_values_outside_of_the_vocabulary_are_refused(model, text):
    with pytest.raises(HistoryError, match=r"^op \d is "):
        judged_by(model, parsed(text))


NEW = sorted({model for model, *_ in CASES} - {"mutex"})


@pytest.mark.parametrize("model", NEW)
def test_options_of_other_models_are_refused(model):
    ops = parsed(next(text for name, text, *_ in CASES if name == model))
    with pytest.raises(UsageError):
        judged_by(model, ops, linearizable_keys=True)
    if not model.startswith("bank"):
        with pytest.raises(UsageError):
            judged_by(model, ops, initial=3)
    assert load_plugin("checkers", model).version is not None


@pytest.mark.parametrize(
    ("initial", "verdict", "rule"),
    [
        (20, VALID, None),
        ({"0": 10, "1": 10}, VALID, None),
        (15, INVALID, "wrong-total"),
        ({"0": 20}, INVALID, "unexpected-account"),
        ("x", None, None),
        ({"0": 1.5}, None, None),
        ({}, None, None),
    ],
)
def test_the_total_of_a_bank_can_be_stated(initial, verdict, rule):
    ops = parsed(f"{MOVED}; {SEEN}")
    if verdict is None:
        with pytest.raises(UsageError, match="--initial is"):
            judged_by("bank", ops, initial=initial)
        return
    result, _ = judged_by("bank", ops, initial=initial)
    assert result.verdict is verdict
    assert result.details.get("rule") == rule


def test_details_count_observations():
    text = f"{ADDED}; 1! read; 1+ read []; 1! read; 1+ read [1]; 0! add 2; 0+ add 2"
    details = judged_by("set-full", parsed(text))[0].details
    assert (details["stable"], details["stale"], details["never_read"]) == (1, 1, 1)
    assert details["lost"] == 0
    text = f"{IN}; 0! enq 3; 0? enq 3; 1! deq; 1+ deq 1; {DRAINED} [1, 2, 3]"
    details = judged_by("at-least-once-queue", parsed(text))[0].details
    assert (details["recovered"], details["duplicated"], details["lost"]) == (2, 1, 0)
    assert (
        judged_by("set-final", parsed(f"{ADDED}; 2! add 2; 2? add 2; 1! read; 1+ read [1, 2]"))[
            0
        ].details["recovered"]
        == 1
    )
