"""The model `lease`, in cases for each rule and in small random histories with an oracle."""

import itertools
import random
from collections import Counter

import pytest

from checkers.jepsen.leases import DRIFT
from harness.errors import HistoryError
from harness.ops import Op, OpType, Verdict
from tests.support.histories import judged_by, parsed

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
MS = 1_000_000
SEEDS = 300
KINDS = {"!": OpType.INVOKE, "+": OpType.OK, "-": OpType.FAIL, "?": OpType.INFO}


def history(*lines):
    """Build ops from `(time in ms, process, kind, f, token)`; each lease lasts 1000 ms."""
    ops = []
    for number, (time_ms, process, kind, f, *token) in enumerate(sorted(lines, key=lambda x: x[0])):
        value = {"lease_ms": 1000} if f == "acquire" else {}
        if token:
            value = {"value": token[0]}
        ops.append(Op(number, time_ms * MS, process, KINDS[kind], f, value))
    return ops


def grant(process, begin, end, token):
    return (begin, process, "!", "acquire"), (end, process, "+", "acquire", token)


def release(process, begin, end, kind="+"):
    return (begin, process, "!", "release"), (end, process, kind, "release")


FIRST = grant(0, 0, 10, 1)
CASES = {
    "the lease was over": ((*FIRST, *grant(1, 1000, 1010, 2)), VALID, set()),
    "it may have been over": ((*FIRST, *grant(1, 100, 1000, 2)), VALID, set()),
    "clocks differ a little": ((*FIRST, *grant(1, 900, 995, 2)), VALID, set()),
    "it was not over": ((*FIRST, *grant(1, 900, 980, 2)), INVALID, {"overlap"}),
    "two at the same time": ((*FIRST, *grant(1, 5, 20, 2)), INVALID, {"overlap"}),
    "the other may have been first": ((*grant(0, 0, 1500, 2), *grant(1, 100, 400, 1)), VALID,
        set()),
    "its lease was over before": ((*grant(0, 0, 1600, 1), *grant(1, 1000, 1500, 2)), VALID, set()),
    "the same client again": ((*FIRST, *grant(0, 20, 30, 2)), VALID, set()),
    "it was released": ((*FIRST, *release(0, 20, 30), *grant(1, 40, 50, 2)), VALID, set()),
    "the release was on its way": ((*FIRST, *release(0, 20, 90), *grant(1, 40, 50, 2)), VALID,
        set()),
    "it may have been released": ((*FIRST, *release(0, 20, 30, "?"), *grant(1, 40, 50, 2)), VALID,
        set()),
    "the release failed": ((*FIRST, *release(0, 20, 30, "-"), *grant(1, 40, 50, 2)), INVALID,
        {"overlap"}),
    "the release came later": ((*FIRST, *grant(1, 40, 50, 2), *release(0, 60, 70)), INVALID,
        {"overlap", "stolen-release"}),
    "a grant of unknown outcome": (((0, 0, "!", "acquire"), (10, 0, "?", "acquire"),
        *grant(1, 40, 50, 2)), UNKNOWN, set()),
    "a lower token": ((*grant(0, 0, 10, 5), *grant(1, 2000, 2010, 4)), INVALID, {"token-order"}),
    "tokens at the same time": ((*grant(0, 0, 1500, 1), *grant(1, 100, 400, 2)), VALID, set()),
    "one token twice": ((*grant(0, 0, 10, 5), *grant(1, 2000, 2010, 5)), INVALID,
        {"token-repeated"}),
    "a stolen release": ((*FIRST, *grant(1, 1000, 1010, 2), *release(0, 1100, 1110)), INVALID,
        {"stolen-release"}),
    "a release that the end of the lease may precede": ((*FIRST, *grant(1, 1000, 1010, 2),
        *release(0, 1900, 2100)), VALID, set()),
    "a release of an ended lease": ((*FIRST, *release(0, 1500, 1510), *grant(1, 1600, 1610, 2)),
        VALID, set()),
    "nothing was granted": (((0, 0, "!", "acquire"), (10, 0, "-", "acquire")), UNKNOWN, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_rule(name):
    lines, verdict, rules = CASES[name]
    result, drawn = judged_by("lease", history(*lines))
    assert (result.verdict, set(result.details["by_invariant"])) == (verdict, rules), result
    assert (drawn is not None) is (verdict is INVALID)


@pytest.mark.parametrize(
    "text",
    [
        "0! acquire",
        "0! acquire {'lease_ms': -1}",
        "0! lock {}",
        "0! acquire {'lease_ms': 5}; 0+ acquire {'value': 'x'}",
        "0! acquire {'lease_ms': 5}; 0+ acquire {'lease_ms': 5}",
    ],
)
def test_values_outside_of_the_vocabulary_are_refused(text):
    with pytest.raises(HistoryError, match=r"^op \d is "):
        judged_by("lease", parsed(text))


def test_a_history_without_times_is_refused():
    text = "0! acquire {'lease_ms': 5}; 0+ acquire {'value': 1}"
    ops = [Op(n, n, op.process, op.type, op.f, op.value) for n, op in enumerate(parsed(text))]
    with pytest.raises(HistoryError, match="has no time"):
        judged_by("lease", ops)


# --- random histories ----------------------------------------------------------------------------


def generated(rng, *, broken):
    """Generate a history of a lock with leases; a `broken` lock may grant one too early."""
    holder, end, token, lines = None, 0, 0, []
    busy = dict.fromkeys(range(3), 0)
    for at in itertools.accumulate(rng.randint(1, 500) for _ in range(rng.randint(4, 10))):
        client = rng.randrange(3)
        if busy[client] > at:
            continue
        acts = at + rng.randint(0, 100)
        done = busy[client] = acts + rng.randint(1, 100)
        kind = "?" if rng.random() < 0.1 else "+"
        if holder == client and end > acts and rng.random() < 0.8:
            lines += release(client, at, done, kind)
            holder = None if kind == "+" or rng.random() < 0.5 else holder
        elif holder is None or acts >= end or (broken and rng.random() < 0.3):
            holder, end, token = client, acts + 1000, token + 1
            lines += grant(client, at, done, token) if kind == "+" else [
                (at, client, "!", "acquire"), (done, client, "?", "acquire")
            ]  # fmt: skip
        busy[client] += 10_000 * (kind == "?")
    return history(*lines)


def granted(ops):
    """Return each grant as [process, call, answer, earliest end of its lease]."""
    calls, grants = {}, []
    for op in ops:
        if op.type is OpType.INVOKE:
            calls[op.process] = op
            if op.f == "release":
                for each in grants:
                    if each[0] == op.process:
                        each[3] = min(each[3], op.time)
        elif op.f == "acquire" and op.type is OpType.OK:
            begin = calls[op.process].time
            grants.append([op.process, begin, op.time, begin + int(1000 * MS * (1 - DRIFT))])
    return grants


def possible(grants):
    """Whether the grants have an order and times at which no two leases overlap."""
    for order in itertools.permutations(grants):
        free, owner, at = 0, None, 0
        for process, begin, answer, end in order:
            at = max(at, begin, free if owner != process else 0)
            if at > answer:
                break
            free, owner = max(end, at), process
        else:
            return True
    return not grants


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_histories_agree_with_all_orders(first):
    verdicts = Counter()
    for seed in range(first, first + SEEDS):
        for broken in (False, True):
            ops = generated(random.Random(seed), broken=broken)
            grants = granted(ops)
            if len(grants) > 6:
                continue
            result, _ = judged_by("lease", ops)
            overlaps = "overlap" in result.details["by_invariant"]
            pairs = itertools.combinations(grants, 2)
            assert overlaps is any(a[0] != b[0] and not possible([a, b]) for a, b in pairs), (
                seed,
                ops,
            )
            assert broken or not overlaps, (seed, ops)
            assert not (overlaps and possible(grants)), (seed, ops)
            verdicts[broken, result.verdict] += 1
    assert verdicts[False, VALID] > SEEDS / 2
    assert verdicts[True, INVALID] > SEEDS / 4
