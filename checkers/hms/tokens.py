"""Checks that every metastore judges delegation tokens by the shared store.

A token is good if it was issued, not cancelled, and has not expired. If a token was certainly good,
or certainly not good, during an operation, the answer must agree. If an operation that changes the
token is under way, or was not answered, every answer is right.

| rule      | violation                                                                           |
|-----------|-------------------------------------------------------------------------------------|
| refused   | a good token is refused, no matter which metastore issued it (I11)                  |
| cancelled | a cancelled token is accepted                                                       |
| expired   | an expired token is accepted                                                        |
| forged    | a token that no metastore issued is accepted                                        |
| owner     | a token is accepted for another owner                                               |
| access    | a user other than the renewer can renew a token, or the renewer cannot              |
| twice     | the same token was issued twice                                                     |
| unshared  | `refused` or `cancelled` at another metastore than the issuer, after the issuer     |
|           | restarted, or if another metastore issued a token with the same identifier: each    |
|           | metastore seems to have its own tokens                                              |
| stale     | `unshared`, soon after the token was issued, renewed or cancelled, if the store may |
|           | return stale answers for some time (the snapshot has this time)                     |
| renew-gap | `refused` or `cancelled` while a renewal is under way or has an unknown outcome     |

Tokens expire by the metastores' clocks, which differ from the run's clock by up to `MARGIN_MS`
plus the effect of clock faults. Answers within this difference of a token's end are not judged.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from checkers.verdict.findings import Findings
from checkers.verdict.sentences import act
from harness.errors import counted
from harness.ops import NEMESIS, NS_PER_MS, CheckResult, History, OpType, Pair
from harness.permits import permits_of
from harness.plugins import Checker
from harness.timeline import CLOCK, faults_of
from harness.vocabularies import fields_of
from harness.vocabularies.hms import times_sent
from harness.vocabularies.hms_tokens import ACCESS_CONTROL, BY_NAME, INVALID_TOKEN, Issue

USES: Final = BY_NAME.keys() - {Issue.f}
MARGIN_MS: Final = 500.0
_PASSWORD: Final = re.compile(r":[0-9a-f]{40}\Z")


class TokensChecker(Checker):
    """Checks that every metastore accepts a token until its end, and none accepts it later."""

    api_version = 1
    name = "hms-tokens"
    doc = "a metastore accepts a token if and only if the shared store would"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        findings = Findings(self.name, permits_of(history))
        times = _times_of(history)
        if times is None:
            reason = "the run ended before the lifetime of tokens was recorded"
            findings.gap(reason, rule="unfinished")
            return findings.result("")
        judge = _Judge(history, times, findings)
        judge.judge_all()
        judged = findings.looked.total()
        if judged == 0:
            reason = "no token had a certain state when it was used"
            findings.gap(reason, rule="nothing")
        return findings.result(
            f"{counted(judged, 'verdict')} on {counted(len(judge.tokens), 'token')}",
            {"tokens": len(judge.tokens), "uncertain": judge.uncertain},
        )


class _Times(NamedTuple):
    """The time limits of tokens, from the snapshot.

    A token ends at its maximum age, or `renew_ns` after its issue or last renewal.
    """

    max_age_ns: float
    renew_ns: float
    stale_ns: float


def _times_of(history: History) -> _Times | None:
    snapshot = fields_of(next(iter([*history.facts("snapshot")][::-1]), None))
    tokens = snapshot.get("tokens")
    if not isinstance(tokens, Mapping):
        return None
    times_ms = (tokens["max_age_ms"], tokens["renew_ms"], tokens.get("stale_ms", 0.0))
    return _Times(*(time_ms * NS_PER_MS for time_ms in times_ms))


@dataclass(slots=True)
class _Token:
    issue: Pair
    renewals: list[Pair] = field(default_factory=list)
    cancels: list[Pair] = field(default_factory=list)
    late: list[int] = field(
        default_factory=list
    )  # the renewals (indices) that may have come after the token's end, and so prove no later end

    @property
    def issuer(self) -> str | None:
        return _node(self.issue)


class _Write(NamedTuple):
    """An operation that set the end of a token between the op indices `begin` and `done`.

    The token's new end is between `low` and `high`, in ns of the run.
    """

    begin: float
    done: float
    low: float
    high: float


def _node(pair: Pair) -> str | None:
    return None if pair.completion is None else pair.completion.node


def _end(pair: Pair) -> float:
    return math.inf if _is_open(pair) or pair.completion is None else pair.completion.index


def _is_open(pair: Pair) -> bool:
    done = pair.completion
    return done is None or done.type is OpType.INFO or times_sent(done.attempts) > 1


def _result(pair: Pair) -> str | None:
    if pair.type is OpType.OK:
        return str(fields_of(pair.completion).get("result", "ok"))
    result = fields_of(pair.completion).get("result") if pair.type is OpType.FAIL else None
    return result if result in (INVALID_TOKEN, ACCESS_CONTROL) else None


class _Judge:
    def __init__(self, history: History, times: _Times, findings: Findings) -> None:
        self._history = history
        self._times = times
        self._findings = findings
        self._clock_faults = [
            fault for fault in faults_of(history.of_process(NEMESIS), most=None)
            if fault.kind == CLOCK
        ]  # fmt: skip
        self._ends: dict[str, list[int]] = {}  # node -> the op indices at which its process ended
        for op in history.facts("node-exit"):
            self._ends.setdefault(str(fields_of(op).get("node")), []).append(op.index)
        self.tokens: dict[str, _Token] = {}
        self._issued: Counter[str] = Counter()  # how many tokens have this identifier
        self.uncertain = 0

    def judge_all(self) -> None:
        for pair in self._history.pairs:
            token = fields_of(pair.completion).get("token")
            if pair.invoke.f == "issue" and pair.type is OpType.OK and isinstance(token, str):
                issued = self.tokens.setdefault(token, _Token(pair))
                self._issued[_identifier(pair)] += issued.issue is pair
                text = f"{_act(pair)} and got the same token as op {issued.issue.invoke.index}."
                self._findings.hold("twice", issued.issue is pair, text, (pair.invoke.index,))
        uses = [pair for pair in self._history.pairs if pair.invoke.f in USES]
        for pair in uses:
            token_used = self._token_of(pair)
            if token_used is not None and pair.type is not OpType.FAIL:
                if pair.invoke.f == "renew":
                    # Later renewals set a later end, so only earlier operations count here.
                    if pair.type is OpType.OK and not self._is_good(pair, token_used):
                        token_used.late.append(pair.invoke.index)
                    token_used.renewals.append(pair)
                elif pair.invoke.f == "cancel":
                    token_used.cancels.append(pair)
        for pair in uses:
            if pair.invoke.f != "cancel" and (result := _result(pair)) is not None:
                self._judge(pair, result)

    def _token_of(self, pair: Pair) -> _Token | None:
        return self.tokens.get(str(fields_of(pair.invoke).get("token")))

    # --- one use -----------------------------------------------------------------------------

    def _judge(self, use: Pair, result: str) -> None:
        token = self._token_of(use)
        if token is None:
            text = f"{_act(use)}, which was never issued, but was accepted."
            self._findings.hold("forged", result != "ok", text, (use.invoke.index,))
            return
        if use.invoke.f == "renew":
            user = fields_of(use.invoke).get("user")
            if user != fields_of(token.issue.invoke).get("renewer"):
                text = f"{self._told(use, token)} as {user}, who is not its renewer, and succeeded."
                self._findings.hold("access", result != "ok", text, self._blamed(use, token))
                return
        if result == "ok":
            self._judge_accepted(use, token)
        else:
            self._judge_refused(use, token, result)

    def _judge_accepted(self, use: Pair, token: _Token) -> None:
        if use.invoke.f == "verify":
            owner, answer = fields_of(token.issue.invoke).get("owner"), fields_of(use.completion)
            text = (
                f"{self._told(use, token)} of {owner}, but was accepted as a token of "
                f"{answer.get('owner')}."
            )
            self._findings.hold(
                "owner", answer.get("owner") == owner, text, self._blamed(use, token)
            )
        before = [c for c in token.cancels if _is_done_before(c, use)]
        if before:
            rules = [self._rule_of_cancel(cancel, use, token) for cancel in before]
            rule = "cancelled" if "cancelled" in rules else rules[-1]
            text = f"{self._told(use, token)} and it was accepted, after {_act(before[-1])}."
            self._findings.hold(rule, False, text, self._blamed(use, token, before[-1]))
        elif self._is_expired(use, token):
            text = f"{self._told(use, token)} and it was accepted, although it had expired."
            self._findings.hold("expired", False, text, self._blamed(use, token, *token.renewals))
        elif self._is_good(use, token):
            self._findings.hold("refused", True, "")
        else:
            self.uncertain += 1

    def _judge_refused(self, use: Pair, token: _Token, result: str) -> None:
        if self._is_good(use, token):
            text = f"{self._told(use, token)} and was answered {result}, though the token is good: "
            text += "it was not cancelled and is not expired."
            rule = self._rule_of_refusal(use, token)
            if rule in {"refused", "stale"} and result == ACCESS_CONTROL:
                rule = "access"
            self._findings.hold(rule, False, text, self._blamed(use, token))
        elif self._is_expired(use, token) or any(_is_done_before(c, use) for c in token.cancels):
            self._findings.hold("cancelled", True, "")
        else:
            self.uncertain += 1

    # --- certainties ------------------------------------------------------------------------

    def _is_good(self, use: Pair, token: _Token) -> bool:
        assert use.completion is not None, "the use was answered"
        if not _is_done_before(token.issue, use):
            return False
        if any(cancel.invoke.index < use.completion.index for cancel in token.cancels):
            return False
        low, _ = self._bounds(use, token)
        return use.completion.time < low

    def _is_expired(self, use: Pair, token: _Token) -> bool:
        """Whether the token had certainly ended before `use` was invoked.

        For a renewal, only the maximum age of the token counts.
        """
        assert token.issue.completion is not None, "the issue was answered"
        slack_ns = self._slack_ns(use)
        if use.invoke.f == "renew":
            high = token.issue.completion.time + self._times.max_age_ns + slack_ns
        else:
            _, high = self._bounds(use, token)
        return use.invoke.time > high

    def _bounds(self, use: Pair, token: _Token) -> tuple[float, float]:
        writes = self._last_writes(use, token)
        slack_ns = self._slack_ns(use)
        return min(w.low for w in writes) - slack_ns, max(w.high for w in writes) + slack_ns

    def _last_writes(self, use: Pair, token: _Token) -> list[_Write]:
        """Return all writes that may have set the end that `use` saw."""
        assert use.completion is not None, "the use was answered"
        writes = list(self._writes(use, token))
        certain = [w for w in writes if w.done < use.invoke.index]
        newest = max((w.begin for w in certain), default=-1.0)
        return [w for w in writes if w.begin < use.completion.index and w.done >= newest]

    def _writes(self, use: Pair, token: _Token) -> Iterator[_Write]:
        """Yield the writes of the token's end: its issue, its renewals, and late retries."""
        assert token.issue.completion is not None, "the issue was answered"
        assert use.completion is not None, "the use was answered"
        first, last = token.issue.invoke.time, token.issue.completion.time
        youngest_ns, oldest_ns = (at + self._times.max_age_ns for at in (first, last))

        def write(begin: float, done: float, first: float, last: float) -> _Write:
            renew_ns = self._times.renew_ns
            low, high = min(youngest_ns, first + renew_ns), min(oldest_ns, last + renew_ns)
            return _Write(begin, done, low, high)

        yield write(token.issue.invoke.index, token.issue.completion.index, first, last)
        for pair in token.renewals:
            begun, done = pair.invoke, pair.completion
            if done is not None and done.type is OpType.OK:
                certain = write(begun.index, done.index, begun.time, done.time)
                if begun.index in token.late:
                    certain = certain._replace(low=-math.inf)
                yield certain
            if _is_open(pair):
                yield write(begun.index, math.inf, begun.time, use.completion.time)

    def _slack_ns(self, use: Pair) -> float:
        """Return the maximum difference in ns between two metastores' clocks until `use` ended."""
        assert use.completion is not None, "the use was answered"
        low = high = 0.0
        for fault in self._clock_faults:
            if fault.start > use.completion.time:
                continue
            until = min(fault.end or math.inf, use.completion.time)
            what: Mapping[str, Any] = fields_of(fault.begin).get("what") or {}
            offset_ns = float(what.get("offset_ms", 0.0)) * NS_PER_MS
            drift_ns = float(what.get("drift_ppm", 0)) * (until - fault.start) / 1e6
            low = min(low, offset_ns, offset_ns + drift_ns, drift_ns)
            high = max(high, offset_ns, offset_ns + drift_ns, drift_ns)
        return MARGIN_MS * NS_PER_MS + high - low

    # --- rules that answers break ----------------------------------------------------------------

    def _rule_of_refusal(self, use: Pair, token: _Token) -> str:
        if any(_overlap(renewal, use) for renewal in token.renewals if renewal is not use):
            return "renew-gap"
        if any(self._is_late(write, use) for write in (token.issue, *token.renewals)):
            return "stale"
        if self._is_elsewhere(use, token.issue) or self._has_double(token):
            return "unshared"
        return "refused"

    def _rule_of_cancel(self, cancel: Pair, use: Pair, token: _Token) -> str:
        if any(_overlap(renewal, cancel) for renewal in token.renewals if renewal is not use):
            return "renew-gap"
        # A metastore that renews a token after a stale read of the store writes the cancelled token
        # back.
        if any(self._is_late(cancel, late) for late in (use, *token.renewals)):
            return "stale"
        if self._is_elsewhere(cancel, token.issue) or self._has_double(token):
            return "unshared"
        return "cancelled"

    def _is_late(self, write: Pair, use: Pair) -> bool:
        """Whether the metastore that answered `use` may not have seen `write` in the store yet."""
        done = write.completion
        if done is None or use.completion is None or write.type is not OpType.OK:
            return False
        ago_ns = use.invoke.time - done.time
        return 0 <= ago_ns < self._times.stale_ns and self._is_elsewhere(use, write)

    def _has_double(self, token: _Token) -> bool:
        """Whether two metastores issued tokens that differ only in their passwords.

        A metastore that numbers its keys and tokens by itself may do so, and then takes an
        operation on one token for one on the other.
        """
        return self._issued[_identifier(token.issue)] > 1

    def _is_elsewhere(self, pair: Pair, first: Pair) -> bool:
        """Whether `pair` was answered by another node than `first`, or after a restart."""
        assert pair.completion is not None, "the use was answered"
        node = _node(first)
        if _node(pair) != node:
            return True
        ends = self._ends.get(str(node), ())
        return any(first.invoke.index < at < pair.completion.index for at in ends)

    # --- words -------------------------------------------------------------------------------

    def _told(self, use: Pair, token: _Token) -> str:
        issued, at = token.issue.invoke.index, token.issuer
        return f"{_act(use)} (issued by op {issued} at {at})"

    def _blamed(self, use: Pair, token: _Token, *others: Pair) -> tuple[int, ...]:
        return (token.issue.invoke.index, *(p.invoke.index for p in others), use.invoke.index)


def _identifier(issue: Pair) -> str:
    """Return the token without its password, or the whole opaque token of a real metastore."""
    return _PASSWORD.sub("", str(fields_of(issue.completion).get("token")))


def _is_done_before(pair: Pair, use: Pair) -> bool:
    done = pair.completion
    return done is not None and pair.type is OpType.OK and done.index < use.invoke.index


def _overlap(renewal: Pair, other: Pair) -> bool:
    assert other.completion is not None, "the other operation was answered"
    return renewal.invoke.index < other.completion.index and other.invoke.index < _end(renewal)


def _act(pair: Pair) -> str:
    return act(pair, BY_NAME)
