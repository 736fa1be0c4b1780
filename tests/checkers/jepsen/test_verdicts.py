"""Models taken from Jepsen give hand-written histories the right verdict, rule and operations."""

import pytest

from harness.errors import HistoryError, UsageError
from harness.ops import Verdict
from harness.registry import load_plugin
from tests.support.histories import judged_by, parsed, table

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
FULL = "set-full set-full-linearizable set-final"
QUEUES = "total-queue at-least-once-queue"


def write(who, key, value=1):
    return f"{who} txn [['w', '{key}', {value}]]"


def read(who, **seen):
    asked = [["r", key, None] for key in seen]
    answer = [["r", key, value] for key, value in seen.items()]
    return f"{who} txn {asked} -> {answer}"


LOST = f"{write('0!?', 'x')}; {write('1!?', 'y')}"
BOTH = f"{write(0, 'x')}; {write(1, 'y')}"
TWICE = f"{BOTH}; {write(0, 'x', value=2)}"
NAMED = {
    "MOVED": "0 transfer {'from': 0, 'to': 1, 'amount': 5}",
    "SEEN": "1 read -> {'0': 5, '1': 15}",
    "IN": "0 enq 1; 0 enq 2",
    "ONE": "insert [1, [7, None]]",
    "OTHER": "insert [1, [None, 8]]",
}
# Models -> rows of a history, its verdict, the broken rule and the blamed operations.
TABLES = {
    FULL: """
        0 add 1; 1 read -> [1] => valid
        0 add 1; 1 read -> {'#{}': [1]} => valid
        0 add 1; 1 read -> [] => invalid lost 0 2
        0 add 1 => unknown nothing-observed
        0 add 1; 1!? read => unknown nothing-observed
        0 add 1; 1!- read => unknown nothing-observed
        1 read -> [] => unknown nothing-observed
        # Elements that no client added, whose add failed, or that were added only later.
        0 add 1; 1 read -> [1, 2] => invalid unexpected 2
        0 add 1; 1 read -> [1, True] => invalid unexpected 2
        0!- add 2; 0 add 1; 1 read -> [1, 2] => invalid unexpected 4 0
        0 add 1; 1 read -> [1, 2]; 0 add 2 => invalid unexpected 2 4
        0!- add 2; 0 add 2; 0 add 1; 1 read -> [1, 2] => valid
        0 add 1; 1 read -> [1, 1] => invalid duplicated 2
        # The element of an add of unknown outcome may be present or absent.
        0 add 1; 2!? add 2; 1 read -> [1] => valid
        0 add 1; 2!? add 2; 1 read -> [1, 2] => valid
        # A read that overlaps the add may miss the element.
        0! add 1; 1! read; 0+ add 1; 1+ read [] => unknown nothing-observed
        0! add 1; 1 read -> []; 0+ add 1; 1 read -> [1] => valid
        # Maelstrom's broadcasts.
        0 broadcast 1; 1 read -> [1] => valid
        0 broadcast 1; 1 read -> [] => invalid lost 0 2
    """,
    "set-full set-full-linearizable": """
        # The element of an add of unknown outcome must not come and go.
        0 add 1; 2!? add 2; 1 read -> [1, 2]; 1 read -> [1] => invalid lost 4 6
    """,
    "set-full-linearizable": """
        # Once a read has shown an element, no later read may miss it.
        0! add 1; 1 read -> [1]; 1 read -> []; 0+ add 1; 1 read -> [1] => invalid stale 1 3
        0 add 1; 1 read -> []; 1 read -> [1] => invalid stale 0 2
    """,
    "set-full set-final": """
        0 add 1; 1 read -> []; 1 read -> [1] => valid
        0 add 1; 1 read -> [1]; 1 read -> [] => invalid lost 0 4
    """,
    "set-full": """
        0 add 1; 1 read -> [1]; 0 add 2; 0 add 3 => valid # most elements were never read
    """,
    "counter": """
        0 add 1; 1 read -> 1 => valid
        1 read -> 0 => valid
        1 read -> 1 => invalid above 0
        0 add 5; 1 read -> 4 => invalid below 2 0
        0 add 5; 1 read -> 6 => invalid above 2
        0!- add 5; 1 read -> 5 => invalid above 2
        0!? add 5; 1 read -> 5; 1 read -> 0 => valid
        0! add 5; 1 read -> 3; 0+ add 5 => invalid unreachable 1 0
        0! add 5; 2! add 2; 1 read -> 2 => valid
        1 read -> 5; 0 add 5 => invalid above 0
        0 add -5; 1 read -> -5 => valid
        0 add -5; 1 read -> 0 => invalid above 2 0
        0! add -5; 2! add 3; 1 read -> -2 => valid
        0! add -5; 2! add 3; 1 read -> -1 => invalid unreachable 2 0 1
        0! add -5; 1 read -> -6 => invalid below 1
        0 add 1 => unknown nothing-observed
        0 add 1; 1!? read => unknown nothing-observed
        # blames the certain adds beyond the read value, the largest first
        0 add 1; 0 add 9; 0 add 2; 1 read -> 3 => invalid below 6 2
        0 add [7, 1]; 1 read [7, None] -> [7, 1] => valid
        0 add [7, 1]; 1 read [7, None] -> [7, 1]; 0 add [8, 1]; 1 read [8, None] -> [8, 0]
            => invalid below 6 4
    """,
    "bank": """
        1 read -> {'0': 10, '1': 10}; MOVED; SEEN => valid
        1 read -> [[0, 10], [1, 10]]; MOVED; SEEN => valid
        1 read -> [10, 10]; MOVED; 1 read -> [5, 15] => valid
        1 read -> [10, 10]; MOVED; 1 read -> [5, 15]; 1 read -> [5, 10] => invalid wrong-total 6 0
        1 read -> [20, 0]; MOVED; 1 read -> [20] => unknown # a row is missing
        MOVED; SEEN; SEEN; 1 read -> {'0': 5, '1': 10} => invalid wrong-total 6 2
        MOVED; SEEN => unknown nothing-observed # one read cannot be wrong
        SEEN; SEEN => unknown nothing-observed # nothing moved
        MOVED => unknown nothing-observed
        MOVED; 1!? read => unknown nothing-observed
        MOVED; SEEN; 1 read -> {'0': -1, '1': 21} => invalid negative-balance 4
        MOVED; SEEN; SEEN; 1 read -> {'0': 20, '1': None} => invalid no-balance 6
    """,
    "bank-overdraft": """
        MOVED; SEEN; 1 read -> {'0': -1, '1': 21} => valid
        MOVED; SEEN; SEEN; 1 read -> {'0': -1, '1': 20} => invalid wrong-total 6 2
    """,
    QUEUES: """
        IN; 9 drain -> [2, 1] => valid
        IN; 1 deq -> 2; 9 drain -> [1] => valid
        IN; 9 drain -> [1] => invalid lost 2 4
        IN; 9 drain -> [] => invalid lost 0 4 2
        IN; 1 deq -> 1; 1 deq => invalid lost 2 6
        IN; 1 deq -> 1 => unknown nothing-observed
        9 drain -> [] => unknown
        IN; 9 drain -> [1, 2, 3] => invalid unexpected 4
        IN; 0!- enq 3; 9 drain -> [1, 2, 3] => invalid unexpected 6 4
        1 deq -> 1; IN; 9 drain -> [2] => invalid unexpected 0 2
        # unknown outcomes
        IN; 0!? enq 3; 9 drain -> [1, 2] => valid
        IN; 0!? enq 3; 9 drain -> [1, 2, 3] => valid
        IN; 1!? deq; 9 drain -> [1] => valid
        IN; 1!? deq; 9 drain -> [] => invalid lost 0 6 2
        IN; 9 drain -> [1]; 1!? deq => invalid lost 2 4
        IN; 1!? drain; 9 drain -> [] => unknown exempt
        IN; 1!? drain -> [1]; 9 drain -> [2] => valid
        # An enqueue after the drain is not judged.
        IN; 9 drain -> [1, 2]; 0 enq 3 => valid
    """,
    "total-queue": """
        IN; 1 deq -> 1; 9 drain -> [1, 2] => invalid duplicated 4 6
        IN; 0!? enq 1; 9 drain -> [1, 2, 1] => valid
    """,
    "at-least-once-queue": "IN; 1 deq -> 1; 9 drain -> [1, 2] => valid",
    "unique-ids": """
        0 generate -> 1; 0 generate -> 2 => valid
        0 generate -> 1; 0 generate -> '1' => valid
        0 generate -> 1; 1 generate -> 2; 0 generate -> 1 => invalid duplicate-id 0 4
        0 generate -> 1; 1!? generate -> 1 => unknown nothing-observed
        0!- generate => unknown nothing-observed
    """,
    "long-fork": f"""
        {BOTH}; {read(2, x=1, y=None)}; {read(2, x=1, y=1)} => valid
        {BOTH}; {read(2, x=1, y=None)}; {read(3, x=None, y=1)} => invalid fork 4 6
        # the same fork, with other keys in between
        {BOTH}; {read(2, x=1, y=None, z=None)}; {read(3, y=1, x=None)} => invalid fork 4 6
        {BOTH}; {read(2, x=1, y=None)}; {read("3!?", x=None, y=1)} => valid
        {BOTH}; {read(2, x=1, y=1)}; {read(3, x=None, y=None)} => unknown nothing-observed
        {BOTH} => unknown nothing-observed
        {BOTH}; {read(2, x=2, y=None)} => invalid unexpected 4
        {write("0!-", "x")}; {read(2, x=1, y=None)} => invalid unexpected 2 0
        {read(2, x=1, y=None)}; {write(0, "x")} => invalid unexpected 0 2
        # lost writes that were seen
        {LOST}; {read(2, x=1, y=None)}; {read(3, x=None, y=1)} => invalid fork 4 6
        # x was written twice
        {TWICE}; {read(2, x=1, y=None)}; {read(3, x=None, y=1)} => unknown incomplete
        # keys y and z still show a fork
        {TWICE}; {write(0, "z")}; {read(2, y=1, z=None)}; {read(3, y=None, z=1)}
            => invalid fork 8 10
    """,
    "causal-reverse": """
        0 write 1; 0 write 2; 1 read -> [1, 2] => valid
        0 write 1; 0 write 2; 1 read -> [2] => invalid missing 0 2 4
        0 add 1; 0 add 2; 1 read -> [2] => invalid missing 0 2 4
        0 write 1; 0 write 2; 1 read -> [1] => unknown nothing-observed # merely stale
        0 write 1; 0 write 2; 1 read -> [] => unknown nothing-observed
        0 write 1; 0 write 2 => unknown nothing-observed
        # at the same time
        0! write 1; 2! write 2; 0+ write 1; 2+ write 2; 1 read -> [2] => unknown nothing-observed
        # the first write may not have taken effect
        0!? write 1; 2 write 2; 1 read -> [2] => unknown nothing-observed
        # the second write did take effect, since a read saw it
        0 write 1; 2!? write 2; 1 read -> [2] => invalid missing 0 2 4
        0 write 1; 0 write 2; 1 read -> [1, 2, 3] => invalid unexpected 4
        0 write 1; 0 write 2; 2!- write 3; 1 read -> [1, 2, 3] => invalid unexpected 6 4
        0 write 1; 0 write 2; 0 write 1; 1 read -> [2] => unknown incomplete # 1 was written twice
        0 write [7, 1]; 0 write [7, 2]; 1 read [7, None] -> [7, [2]] => invalid missing 0 2 4
    """,
    "g2": """
        0! ONE; 1! OTHER; 0+ ONE; 1- OTHER => valid
        0! ONE; 1! OTHER; 0+ ONE; 1+ OTHER => invalid g2 0 1
        0! ONE; 1! insert [2, [None, 8]]; 0+ ONE; 1+ insert [2, [None, 8]]
            => unknown nothing-observed
        0! ONE; 1! OTHER; 0+ ONE; 1? OTHER => unknown nothing-observed
        0! ONE; 1! OTHER; 0- ONE; 1- OTHER => unknown nothing-observed
    """,
    "owned-mutex": """
        0 acquire; 0 release; 1 acquire => valid
        0 acquire; 1 acquire => invalid
        0 acquire; 1 release => invalid
        0 acquire; 1!- acquire; 0 release => valid
        0 acquire; 0!? release; 1 acquire => valid
        0!? acquire; 1 acquire => valid
        0!? acquire => unknown nothing-observed
    """,
    "mutex": "0 acquire; 1 release => valid",
}
CASES = [
    (model, history, Verdict(verdict), (more or [None])[0], tuple(map(int, more[1:])))
    for models, text in TABLES.items()
    for history, verdict, *more in table(text, **NAMED)
    for model in models.split()
]


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


REFUSED = {
    FULL: ("0! remove 1", "0! add", "0 read -> 3", "0 read -> {'a': 1}"),
    "counter": ("0! add 'x'", "0! add True", "0! add 1.5", "0 read", "0 read -> [1]"),
    "bank": (
        "0! transfer {'from': 0, 'to': 1}",
        "0! transfer {'from': 0, 'to': 1, 'amount': '5'}",
        *("0 read", "0 read -> {'0': 'x'}", "0 read -> [[0, 1], [0, 2]]", "0 read -> [1, 'x']"),
    ),
    QUEUES: ("0! enqueue", "0 drain -> 3", "0! deq; 0+ drain [3]"),
    "unique-ids": ("0 generate",),
    "long-fork": (
        *("0! txn []", "0! txn [['append', 'x', 1]]", "0! txn [['w', 'x', 1], ['w', 'y', 1]]"),
        *("0! txn [['w', 'x', 1], ['r', 'y', 0]]", "0! txn [['r', 'x', 0], ['r', 'x', 0]]"),
    ),
    "causal-reverse": ("0! write", "0 read -> 3"),
    "g2": ("0! insert 3", "0! insert [1, [2, 3]]", "0! insert [1, [None, None]]"),
    "owned-mutex": ("0! lock",),
}


@pytest.mark.parametrize(
    ("model", "text"),
    [(m, text) for models, texts in REFUSED.items() for m in models.split() for text in texts],
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
    ops = parsed(f"{NAMED['MOVED']}; {NAMED['SEEN']}")
    if verdict is None:
        with pytest.raises(UsageError, match="--initial is"):
            judged_by("bank", ops, initial=initial)
        return
    result, _ = judged_by("bank", ops, initial=initial)
    assert result.verdict is verdict
    assert result.details.get("rule") == rule


def test_details_count_observations():
    def counted(model, text, *keys):
        details = judged_by(model, parsed(text))[0].details
        return [details[key] for key in keys]

    text = "0 add 1; 1 read -> []; 1 read -> [1]; 0 add 2"
    keys = ("stable", "stale", "never_read", "lost")
    assert counted("set-full", text, *keys) == [1, 1, 1, 0]
    text = f"{NAMED['IN']}; 0!? enq 3; 1 deq -> 1; 9 drain -> [1, 2, 3]"
    keys = ("recovered", "duplicated", "lost")
    assert counted("at-least-once-queue", text, *keys) == [2, 1, 0]
    text = "0 add 1; 2!? add 2; 1 read -> [1, 2]"
    assert counted("set-final", text, "recovered") == [1]
