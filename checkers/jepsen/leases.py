"""The history model lease: a lock that other clients may take once its holder's lease has ended.

The operations are acquire with `lease_ms`, whose answer has the fencing token in `value`, and
release. In Jepsen's form they are maps: `{:f :acquire, :value {:lease_ms 2000}}`, answered with
`{:lease_ms 2000, :value 7}`. Jepsen has no such test.

A lease gives its client the lock for `lease_ms`, beginning at some moment between the request and
the answer. So the client certainly holds the lock from the answer until `lease_ms` after the
request (less `DRIFT`), or until it requests the release.

* overlap: an acquire was granted while another client certainly held its lease.
* token-order: an acquire was answered before another one began, and has the higher token.
* token-repeated: two acquires got the same token.
* stolen-release: a release succeeded although another client certainly held the lock from its
  request to its answer.

The times of the history must come from a single clock. An acquire or release of unknown outcome
proves no violation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from checkers.foreign.keyed import by_key
from checkers.foreign.model import bad_op, refuse_initial, refuse_settings
from checkers.foreign.plain_form import outcome_of
from checkers.jepsen.model import DirectCheck, nothing_seen
from checkers.verdict.findings import Findings
from harness.errors import HistoryError, counted
from harness.ops import NS_PER_MS, History, ModelSettings, Op, OpType, Pair
from harness.plugins import HistoryModel, PreparedCheck
from harness.vocabularies import fields_of, leases

DRIFT: Final = 0.01
"""The share of a lease by which it may end early, since clocks run at different rates."""
_HELD_MAX: Final = 16
"""The maximum number of grants that are compared with each operation. A correct lock has one."""
_KNOWN: Final = "acquire {lease_ms}, answered with a token in 'value', and release"


@dataclass(slots=True)
class _Grant:
    """An acquire, granted between `begin` and `end`, that certainly lasted to `until` (in ns)."""

    process: int | str
    op: int
    begin: int
    end: int
    token: int
    until: int

    def __str__(self) -> str:
        return f"the acquire by process {self.process} (op {self.op}, token {self.token})"


class Lease(HistoryModel, version="1"):
    """The history model of a lock with leases and fencing tokens."""

    api_version = 1
    name = "lease"
    doc = "a lock with leases: no two clients hold it at once, and fencing tokens rise"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_settings(self.name, settings)
        refuse_initial(self.name, settings, "free")
        return by_key(self.name, ops, settings, self.understand)

    def understand(self, history: History) -> DirectCheck:
        """Prepare the check of a single lock's history, whose values have no keys."""
        for pair in history.pairs:
            _check(pair)
        timed = [op for pair in history.pairs for op in (pair.invoke, pair.completion) if op]
        if len(timed) > 1 and all(op.time == op.index for op in timed):
            raise HistoryError(
                f"op {timed[0].index} has no time, and the model {self.name} compares times; write "
                "the nanoseconds of each op as `:time`"
            )
        grants, releases = _read(history.pairs)
        return DirectCheck(
            self.name,
            len(history.pairs),
            partial(_judge, grants, releases),
            lambda: {grant.op: str(grant) for grant in grants},
        )


def _judge(
    grants: Sequence[_Grant], releases: Sequence[Pair], findings: Findings, details: dict[str, Any]
) -> str:
    _judge_overlaps(grants, findings)
    _judge_tokens(grants, findings)
    _judge_releases(grants, releases, findings)
    if not findings.looked["overlap"]:
        nothing_seen(findings, "no two acquires were granted, so there was nothing to contradict")
    details |= {"grants": len(grants), "releases": len(releases)}
    return f"{counted(len(grants), 'lease')} without an overlap"


def _check(pair: Pair) -> None:
    call, done = pair.invoke, pair.completion
    if call.f not in leases.CALLS.by_name:
        raise bad_op(call, Lease.name, _KNOWN)
    if call.f == leases.Acquire.f:
        asked = call.value.get("lease_ms") if isinstance(call.value, Mapping) else None
        if not isinstance(asked, int | float) or isinstance(asked, bool) or asked <= 0:
            raise bad_op(call, Lease.name, _KNOWN)
        if done is not None and outcome_of(pair) is OpType.OK:
            token = fields_of(done).get("value")
            if type(token) is not int:
                raise bad_op(done, Lease.name, _KNOWN)


def _read(pairs: Sequence[Pair]) -> tuple[list[_Grant], list[Pair]]:
    grants: list[_Grant] = []
    releases: list[Pair] = []
    last: dict[int | str, _Grant] = {}
    for pair in pairs:
        call, done = pair.invoke, pair.completion
        kind = outcome_of(pair)
        if call.f == leases.Release.f:
            grant = last.get(call.process)
            if kind is not OpType.FAIL and grant is not None:
                grant.until = min(grant.until, call.time)
            if kind is OpType.OK:
                releases.append(pair)
        elif kind is OpType.OK and done is not None:
            until = call.time + int(call.value["lease_ms"] * NS_PER_MS * (1 - DRIFT))
            token = done.value["value"]
            grant = _Grant(call.process, call.index, call.time, done.time, token, until)
            grants.append(grant)
            last[call.process] = grant
    return grants, releases


def _judge_overlaps(grants: Sequence[_Grant], findings: Findings) -> None:
    held: list[_Grant] = []
    for grant in sorted(grants, key=lambda each: each.end):
        held = [each for each in held if each.until > grant.end]
        findings.look("overlap", bool(findings.looked["grant"]))
        findings.look("grant")
        others = [each for each in held if each.process != grant.process]
        # The leases overlap in either order: even if `grant` came first, its lease lasted beyond
        # the answer to `other`.
        other = next((each for each in others if grant.until > each.end), None)
        if other is not None:
            left_ms = (other.until - grant.end) / NS_PER_MS
            text = (
                f"{grant} was granted although the lease of {other} had at least {left_ms:.3f} ms "
                "left at the answer"
            )
            findings.violate("overlap", text, other.op, grant.op)
        held = sorted([*held, grant], key=lambda each: each.until)[-_HELD_MAX:]


def _judge_tokens(grants: Sequence[_Grant], findings: Findings) -> None:
    """Judge that each token is higher than all tokens that were answered before its request."""
    first: dict[int, _Grant] = {}
    for grant in grants:
        findings.look("token-repeated")
        other = first.setdefault(grant.token, grant)
        if other is not grant:
            text = f"{other} and {grant} got the same fencing token"
            findings.violate("token-repeated", text, other.op, grant.op)
    ended = sorted(grants, key=lambda each: each.end)
    highest: _Grant | None = None
    place = 0
    for grant in sorted(grants, key=lambda each: each.begin):
        while place < len(ended) and ended[place].end < grant.begin:
            if highest is None or ended[place].token > highest.token:
                highest = ended[place]
            place += 1
        if highest is None:
            continue
        findings.look("token-order")
        if highest.token > grant.token:
            text = f"{grant} was requested after {highest} was answered, and has the lower token"
            findings.violate("token-order", text, highest.op, grant.op)


def _judge_releases(grants: Sequence[_Grant], releases: Sequence[Pair], findings: Findings) -> None:
    ordered = sorted(grants, key=lambda each: each.end)
    held: list[_Grant] = []
    place = 0
    for pair in sorted(releases, key=lambda each: each.invoke.time):
        begin, done = pair.invoke.time, pair.completion
        assert done is not None, "it was answered"
        while place < len(ordered) and ordered[place].end <= begin:
            held.append(ordered[place])
            place += 1
        held = [each for each in held if each.until > begin][-_HELD_MAX:]
        findings.look("stolen-release")
        for other in held:
            if other.process != pair.invoke.process and other.until >= done.time:
                text = (
                    f"the release by process {pair.invoke.process} (op {pair.invoke.index}) was "
                    f"answered with ok, while the lease of {other} went on"
                )
                findings.violate("stolen-release", text, other.op, pair.invoke.index)
                break
