"""The model `causal`, in cases for each rule and in small random histories with an oracle."""

import random
from collections import Counter

import pytest

from harness.errors import HistoryError
from harness.formats.edn.jepsen import load_edn
from harness.ops import History, ModelSettings, Op, OpType, Verdict
from harness.registry import load_plugin
from tests.checkers.jepsen.test_runs import judged
from tests.support.histories import Writer, judged_by, parsed

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
SEEDS = 300
FIRST = "0! read-init; 0+ read-init 0; 0! write 1; 0+ write 1"
CASES = [
    (f"{FIRST}; 0! read; 0+ read 1; 0! write 2; 0+ write 2; 0! read; 0+ read 2", VALID, None),
    (f"{FIRST}; 0! read; 0+ read 0", INVALID, "stale"),
    (f"{FIRST}; 0! write 2; 0+ write 2; 0! read; 0+ read 1", INVALID, "stale"),
    (f"{FIRST}; 0! read; 0+ read 7", INVALID, "unexpected"),
    (f"{FIRST}; 0! write 2; 0- write 2; 0! read; 0+ read 2", INVALID, "unexpected"),
    (f"{FIRST}; 0! write 2; 0- write 2; 0! read; 0+ read 1", VALID, None),
    ("0! read-init; 0+ read-init 3", INVALID, "unexpected"),
    (f"{FIRST}; 0! read; 0+ read", UNKNOWN, "nothing-observed"),
    ("0! read; 0+ read 0", UNKNOWN, "nothing-observed"),
    (f"{FIRST}; 1! read; 1+ read 0", UNKNOWN, "nothing-observed"),  # the writer itself read nothing
    (f"{FIRST}; 1! read; 1+ read 0; 0! read; 0+ read 1", VALID, None),
    (f"{FIRST}; 1! read; 0! read; 1+ read 0; 0+ read 0", INVALID, "stale"),
    (f"{FIRST}; 1! write 2; 1+ write 2; 0! read; 0+ read 1", UNKNOWN, "incomplete"),
    (f"{FIRST}; 0! read; 1! write 2; 0+ read 1; 1+ write 2", UNKNOWN, "incomplete"),
]
OPEN = "0! write 1; 0+ write 1; 0! write 2; 0? write 2"


@pytest.mark.parametrize(("text", "verdict", "rule"), CASES)
def test_verdicts(text, verdict, rule):
    result, drawn = judged_by("causal", parsed(text))
    assert result.verdict is verdict, result
    assert result.details.get("rule") == rule
    assert (drawn is not None) is (verdict is INVALID)


@pytest.mark.parametrize("text", ["0! write", "0! add 1", "0! read; 0+ read {'x': 1}"])
def test_values_outside_of_the_vocabulary_are_refused(text):
    with pytest.raises(HistoryError, match=r"^op \d is "):
        judged_by("causal", parsed(text))


def edn(tmp_path, *lines):
    path = tmp_path / "history.edn"
    path.write_text("\n".join(f"{{:process {line}}}" for line in lines))
    check = load_plugin("checkers", "causal").prepare(load_edn(path), ModelSettings())
    return check.check(time_limit_s=10, draw=False)[0]


WRITTEN = (
    "0 :type :invoke :f :read-init :value [7 nil]",
    '0 :type :ok :f :read-init :value [7 0] :position "p1" :link :init',
    "0 :type :invoke :f :write :value [7 1]",
    '0 :type :ok :f :write :value [7 1] :position "p2" :link "p1"',
    "1 :type :invoke :f :read :value [7 nil]",
)


def test_links_of_jepsen_lead_from_one_process_to_the_next(tmp_path):
    good = '1 :type :ok :f :read :value [7 1] :position "p3" :link "p2"'
    assert edn(tmp_path, *WRITTEN, good).verdict is VALID
    stale = good.replace("[7 1]", "[7 0]")
    assert edn(tmp_path, *WRITTEN, stale).details["rule"] == "stale"
    wrong = stale.replace('"p2"', '"p1"')
    assert edn(tmp_path, *WRITTEN, wrong).verdict is UNKNOWN


def test_null_is_the_initial_value_in_runs():
    h = Writer()
    h.ok(0, "read", {"key": "x"}, {"value": None})
    h.ok(0, "write", {"key": "x", "value": 1})
    h.ok(1, "write", {"key": "y", "value": 1})
    h.ok(0, "read", {"key": "x"}, {"value": 1})
    h.ok(1, "read", {"key": "y"}, {"value": 1})
    assert judged("causal", h).verdict is VALID
    h.ok(1, "read", {"key": "y"}, {"value": None})
    assert judged("causal", h).details["rule"] == "stale"


# --- random histories ----------------------------------------------------------------------------


def generated(rng):
    """Generate one client's ops on a register that sometimes lies.

    A write of unknown outcome takes effect later or never.
    """
    held, late, lines, who = 0, [], [], 0
    for number in range(1, rng.randint(4, 12)):
        if late and rng.random() < 0.4:
            held = late.pop(rng.randrange(len(late)))
        if rng.random() < 0.5:
            value = rng.choice([held, held, held, rng.randint(0, number)])
            lines += [(who, OpType.INVOKE, "read", None), (who, OpType.OK, "read", value)]
            continue
        kind = rng.choices([OpType.OK, OpType.INFO, OpType.FAIL], [6, 3, 1])[0]
        lines += [(who, OpType.INVOKE, "write", number), (who, kind, "write", number)]
        if kind is OpType.OK:
            held = number
        elif kind is OpType.INFO:
            late.append(number)
    return [Op(n, n, who, kind, f, value) for n, (who, kind, f, value) in enumerate(lines)]


def possible(ops):
    """Whether a register explains all reads; tries every moment at which writes may take effect."""
    states = {(0, frozenset())}
    for op in ops:
        if op.type is OpType.INVOKE:
            continue
        grown = set()
        while states - grown:
            grown |= states
            # a late write takes effect at this point
            states |= {(write, late - {write}) for _, late in states for write in late}
        if op.f == "write" and op.type is OpType.OK:
            states = {(op.value, late) for _, late in states}
        elif op.f == "write" and op.type is OpType.INFO:
            states = {(held, late | {op.value}) for held, late in states}
        elif op.f == "read":
            states = {(held, late) for held, late in states if held == op.value}
    return bool(states)


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_histories_agree_with_all_explanations(first):
    verdicts = Counter()
    for seed in range(first, first + SEEDS):
        ops = generated(random.Random(seed))
        result, _ = judged_by("causal", History(ops, foreign=True))
        assert (result.verdict is INVALID) is not possible(ops), (seed, ops, result)
        verdicts[result.verdict] += 1
    assert min(verdicts[VALID], verdicts[INVALID]) > SEEDS / 6
