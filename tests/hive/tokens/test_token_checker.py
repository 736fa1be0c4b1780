"""The checker of tokens, on correct, incorrect and uncertain histories."""

import random
from operator import methodcaller as do

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.hms.tokens import MARGIN_MS, TokensChecker
from harness.ops import History, OpType, Verdict
from harness.permits import PERMITTED, permitted_in
from tests.hive.histories import sent_to
from tests.support.histories import MS, Writer

MAX_AGE_MS, RENEW_MS = 20_000, 6000
TOKEN = "alice:yarn:1"


class TokenWriter(Writer):
    """A writer of consecutive 1 ms operations, such as `h.use("hms2", bad=True)`."""

    def begin(self, process, f, **value):
        return self.call(process, f, value)

    def end(self, process, kind=OpType.OK, node="hms1", sent=1, **value):
        f = next(op.f for op in reversed(self.lines) if op.process == process)
        attempts = sent_to("hms1", "hms2")[:sent]
        return self.add(process, kind, f, value or None, node, attempts=attempts)

    def issue(self, node="hms1", token=TOKEN, owner="alice", process=0):
        self.begin(process, "issue", owner=owner, renewer="yarn")
        self.end(process, node=node, result="ok", token=token)

    def renew(self, node="hms1", token=TOKEN, user="yarn", bad="", process=0, sent=1):
        self.begin(process, "renew", token=token, user=user)
        self.end(process, OpType.FAIL if bad else OpType.OK, node, sent, result=bad or "ok")

    def cancel(self, node="hms1", token=TOKEN, process=0):
        self.begin(process, "cancel", token=token)
        self.end(process, node=node, result="ok")

    def use(self, node="hms1", token=TOKEN, bad=False, owner="alice", process=1):
        self.begin(process, "verify", token=token, metastore=0)
        value = {"result": "invalid-token"} if bad else {"result": "ok", "owner": owner}
        self.end(process, node=node, **value)

    def gone(self, f, process=5, **value):
        """Add an operation whose answer was lost."""
        self.begin(process, f, token=TOKEN, **value)
        self.end(process, OpType.INFO)

    def snapshot(self, **more):
        times = {"max_age_ms": MAX_AGE_MS, "renew_ms": RENEW_MS, **more}
        return self.fact("snapshot", {"tokens": times})


def judge(*steps, **more):
    h = TokenWriter().play(steps)
    h.snapshot(**more)
    return TokensChecker().check(History(h.lines), None, time_limit_s=10.0)


def rule(*steps, **more):
    """Return the broken rules, or the verdict if there are none."""
    result = judge(*steps, **more)
    if result.verdict is not Verdict.INVALID:
        return result.verdict.value
    assert result.explanation
    assert result.operations
    return "+".join(result.details["by_invariant"])


def at(time_ms):
    return lambda h: h.at(round(time_ms))


def exited(node):
    return lambda h: h.fact("node-exit", {"node": node, "expected": True})


def clock(offset_ms, drift_ppm=0):
    what = {"type": "clock", "offset_ms": offset_ms, "drift_ppm": drift_ppm}
    value = {"fault": "f0", "targets": ["hms2"], "kind": "clock", "action": "inject", "what": what}
    return lambda h: h.nemesis("clock", value)


ISSUE, RENEW, CANCEL = do("issue"), do("renew"), do("cancel")
USE, REFUSED = do("use"), do("use", bad=True)
DOUBLE = f"{TOKEN}:2:3:0:0:{'a' * 40}"
DOUBLES = (do("issue", token=DOUBLE), do("issue", "hms2", token=f"{DOUBLE[:-40]}{'b' * 40}"))
"""Two metastores issue tokens that differ only in their passwords."""
THERE, REFUSED_THERE = do("use", "hms2"), do("use", "hms2", bad=True)


@pytest.mark.parametrize(
    "steps",
    [
        (ISSUE, USE, THERE),
        (ISSUE, USE, CANCEL, REFUSED, REFUSED_THERE),
        (ISSUE, USE, at(7000), REFUSED, REFUSED_THERE),
        (ISSUE, at(3000), RENEW, at(8000), USE, at(10_000), REFUSED),
        (ISSUE, do("renew", user="mallory", bad="access-control"), USE),
        (ISSUE, do("use", token="forged", bad=True), USE),
        (ISSUE, CANCEL, do("renew", bad="invalid-token"), do("cancel"), REFUSED),
        (ISSUE, at(21_000), do("renew", bad="invalid-token"), REFUSED),
    ],
)
def test_answers_of_a_shared_store_are_valid(steps):
    assert rule(*steps) == "valid"


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ((ISSUE, REFUSED), "refused"),
        ((ISSUE, do("renew", bad="invalid-token")), "refused"),
        ((ISSUE, do("renew", bad="access-control")), "access"),
        ((ISSUE, do("renew", user="mallory")), "access"),
        ((ISSUE, at(5000), RENEW, at(10_000), REFUSED), "refused"),
        ((ISSUE, REFUSED_THERE), "unshared"),
        ((ISSUE, do("renew", "hms2", bad="invalid-token")), "unshared"),
        ((ISSUE, do("renew", "hms2", bad="access-control")), "unshared"),
        ((ISSUE, exited("hms1"), REFUSED), "unshared"),
        ((exited("hms1"), ISSUE, exited("hms2"), REFUSED), "refused"),
        ((ISSUE, CANCEL, USE), "cancelled"),
        ((ISSUE, CANCEL, RENEW), "cancelled"),
        ((ISSUE, CANCEL, THERE), "cancelled"),
        ((ISSUE, do("cancel", "hms2"), USE), "unshared"),
        ((*DOUBLES, do("use", token=DOUBLE, bad=True)), "unshared"),
        ((*DOUBLES, do("cancel", token=DOUBLE), do("use", token=DOUBLE)), "unshared"),
        ((DOUBLES[0], do("use", token=DOUBLE, bad=True)), "refused"),
        ((ISSUE, do("cancel", "hms2"), CANCEL, USE), "cancelled"),
        ((ISSUE, at(6600), USE), "expired"),
        ((ISSUE, at(3000), RENEW, at(9600), USE), "expired"),
        ((ISSUE, at(20_600), RENEW), "expired"),
        ((ISSUE, do("use", token="forged")), "forged"),
        ((do("renew", token="forged"),), "forged"),
        ((ISSUE, do("use", owner="bob")), "owner"),
        ((ISSUE, ISSUE), "twice"),
    ],
)  # fmt: skip
def test_each_rule_finds_what_breaks_it(steps, broken):
    assert rule(*steps) == broken


def within(outer, inner):
    """Return a step in which `inner` happens during the operation `outer` of process 7."""

    def write(h):
        outer(h)
        last = h.lines.pop()
        inner(h)
        h.add(last.process, last.type, last.f, last.value, last.node, attempts=last.attempts)

    return write


RENEWING = do("renew", process=7)


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ((ISSUE, within(RENEWING, REFUSED_THERE)), "renew-gap"),
        ((ISSUE, within(RENEWING, do("renew", bad="invalid-token"))), "renew-gap"),
        ((ISSUE, within(RENEWING, CANCEL), USE), "renew-gap"),
        ((ISSUE, within(RENEWING, CANCEL), CANCEL, USE), "cancelled"),
        ((ISSUE, do("gone", "renew", user="yarn"), REFUSED), "renew-gap"),
        ((ISSUE, do("renew", sent=2), REFUSED), "renew-gap"),
        ((ISSUE, RENEW, REFUSED), "refused"),
    ],
)
def test_a_renewal_under_way_is_named(steps, broken):
    assert rule(*steps) == broken


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ((ISSUE, REFUSED_THERE), "stale"),
        ((ISSUE, at(990), REFUSED_THERE), "stale"),
        ((ISSUE, at(1010), REFUSED_THERE), "unshared"),
        ((ISSUE, REFUSED), "refused"),
        # after its exit, hms1 has a new session, which may read stale data
        ((ISSUE, exited("hms1"), REFUSED), "stale"),
        ((ISSUE, at(3000), RENEW, REFUSED_THERE), "stale"),
        ((ISSUE, at(3000), do("renew", "hms2"), REFUSED), "stale"),
        ((ISSUE, at(3000), RENEW, at(4010), REFUSED_THERE), "unshared"),
        ((ISSUE, at(3000), do("renew", "hms2"), at(4010), REFUSED), "refused"),
        ((ISSUE, do("renew", "hms2", bad="access-control")), "access"),
        ((ISSUE, CANCEL, THERE), "stale"),
        ((ISSUE, CANCEL, USE), "cancelled"),
        ((ISSUE, CANCEL, at(1010), THERE), "cancelled"),
        ((ISSUE, CANCEL, do("renew", "hms2"), at(3000), USE), "stale"),  # renewed after the cancel
        ((ISSUE, within(RENEWING, REFUSED_THERE)), "renew-gap"),
        ((ISSUE, at(6600), THERE), "expired"),
    ],
)
def test_a_store_that_answers_from_the_past_is_named(steps, broken):
    assert rule(*steps, stale_ms=1000) == broken


EITHER = (USE, REFUSED)


@pytest.mark.parametrize("use", EITHER, ids=["accepted", "refused"])
@pytest.mark.parametrize(
    "before",
    [
        (ISSUE, at(6000 - MARGIN_MS + 10)),
        (ISSUE, at(6000 + MARGIN_MS - 10)),
        (ISSUE, do("gone", "cancel")),
        (ISSUE, at(3000), do("gone", "renew", user="yarn"), at(9000)),
        # a copy of the request may have arrived later
        (ISSUE, at(3000), do("renew", sent=2), at(9600)),
        (ISSUE, at(6000), RENEW, at(7000)),  # the token may have been removed before the renewal
        (ISSUE, clock(2000), at(4000)),
        (ISSUE, clock(-2000), at(8000)),
        (ISSUE, clock(0, drift_ppm=500_000), at(5000)),
        (ISSUE, at(3000), within(RENEWING, at(5000)), at(9000)),
    ],
)  # fmt: skip
def test_uncertain_outcomes_never_convict(before, use):
    assert rule(*before, use) == "valid"
    assert judge(*before, use).details["uncertain"] > 0


@pytest.mark.parametrize("use", EITHER, ids=["accepted", "refused"])
@pytest.mark.parametrize("outer", [CANCEL, ISSUE], ids=["cancel", "issue"])
def test_operations_under_way_never_convict(use, outer):
    first = () if outer is ISSUE else (ISSUE,)
    other = do("issue", token="another", process=3)
    assert rule(other, do("use", token="another"), *first, within(outer, use)) == "valid"


def test_a_fault_of_a_clock_is_felt_from_when_it_begins():
    assert rule(ISSUE, at(4000), REFUSED_THERE, clock(2000)) == "unshared"
    assert rule(ISSUE, at(3000), clock(2000), REFUSED_THERE) == "unshared"


def test_without_tokens_or_without_an_end_it_is_unknown():
    assert rule() == "unknown"
    h = TokenWriter()
    h.issue()
    h.use(bad=True)
    result = TokensChecker().check(History(h.lines), None, time_limit_s=10.0)
    assert result.verdict is Verdict.UNKNOWN


def test_a_permit_gives_up_its_rule_and_no_other():
    def permitting(*names):
        permits = [
            {"name": name, "why": "so it is", "rules": {"hms-tokens": [name]}} for name in names
        ]
        return lambda h: h.fact("permits", {"profile": "p", "permits": permits})

    result = judge(permitting("unshared"), ISSUE, REFUSED_THERE, REFUSED_THERE)
    assert permitted_in(result) == {"unshared": 2}
    assert rule(permitting("renew-gap"), ISSUE, REFUSED_THERE) == "unshared"
    result = judge(permitting("unshared"), ISSUE, REFUSED_THERE, REFUSED)
    assert (result.verdict, result.details["rule"]) == (Verdict.INVALID, "refused")
    assert result.details["by_invariant"] == {"refused": 1}
    assert result.details[PERMITTED] == {"unshared": 1}


# --- a correct store is never convicted --------------------------------------------------------


def true_history(rng):
    """Build a history of an atomic store; operations take effect between call and return.

    Clocks of metastores differ by less than the margin. Answers are lost, and their requests may
    act later. Expired tokens may be removed at any time.
    """
    offsets = {node: rng.uniform(0, MARGIN_MS) for node in ("hms1", "hms2")}
    plan = []
    for process in range(40):
        begin = rng.uniform(0, 30_000)
        f = rng.choices(("issue", "renew", "cancel", "verify"), (2, 6, 1, 12))[0]
        length = rng.choice((1, 50, 3000)) * rng.random()
        act = begin + length * rng.random()
        is_lost = f != "verify" and rng.random() < 0.2
        plan.append((act + rng.choice((0, 9000)) * is_lost, begin, length, process, f, is_lost))
    store, issued, cells = {}, [], []
    for act, begin, length, process, asked, is_lost in sorted(plan):
        node = rng.choice(("hms1", "hms2"))
        now = act + offsets[node]
        for token in [t for t, (until, _) in store.items() if until < now and rng.random() < 0.3]:
            del store[token]
        known = [token for token, since in issued if since < begin]
        f = asked if known else "issue"
        if f == "issue":
            token = f"t{process}"
            store[token] = (now + RENEW_MS, now + MAX_AGE_MS)
            value, answer = {"owner": "alice", "renewer": "yarn"}, {"result": "ok", "token": token}
            issued += [] if is_lost else [(token, begin + length)]
        else:
            token = rng.choice(known)
            value, answer = {"token": token}, {"result": "invalid-token"}
            until, most = store.get(token, (0, 0))
            if f == "renew":
                value["user"] = "yarn"
                if most >= now:
                    store[token] = (min(most, now + RENEW_MS), most)
                    answer = {"result": "ok"}
            elif f == "cancel":
                store.pop(token, None)
                answer = {"result": "ok"}
            elif until >= now:
                answer = {"result": "ok", "owner": "alice"}
        kind = OpType.INFO if is_lost else OpType.OK
        if not is_lost and f == "renew" and answer["result"] != "ok":
            kind = OpType.FAIL
        cells.append((begin, process, OpType.INVOKE, f, value, None))
        cells.append((begin + length, process, kind, f, None if is_lost else answer, node))
    return sorted(cells, key=lambda cell: cell[0])


def written(cells):
    h = TokenWriter()
    for time_ms, process, kind, f, value, node in cells:
        h.add(process, kind, f, value, node, attempts=sent_to("hms1") if node else ())
        h.lines[-1] = type(h.lines[-1])(
            len(h.lines) - 1, round(time_ms * MS), process, kind, f, value, node=node,
            attempts=h.lines[-1].attempts,
        )  # fmt: skip
    h.snapshot()
    return TokensChecker().check(History(h.lines), None, time_limit_s=10.0)


@given(st.integers(0, 2**32))
def test_a_true_store_is_never_convicted(seed):
    found = written(true_history(random.Random(seed)))
    assert found.verdict is not Verdict.INVALID, found.explanation


def test_an_answer_that_is_turned_round_is_mostly_found():
    turned = judged = 0
    for seed in range(20):
        cells = true_history(random.Random(seed))
        looked = written(cells).details.get("looked", {})
        judged += sum(looked.get(name, 0) for name in ("refused", "cancelled"))
        for number, (*head, f, value, node) in enumerate(cells):
            if f == "verify" and node is not None:
                bad = {"result": "invalid-token"}
                other = {"result": "ok", "owner": "alice"} if value == bad else bad
                wrong = [*cells[:number], (*head, f, other, node), *cells[number + 1 :]]
                turned += written(wrong).verdict is Verdict.INVALID
    assert turned > 60
    assert turned <= judged
