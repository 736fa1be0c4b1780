"""Delegation tokens, which clients issue, renew and cancel, and use at any metastore.

Few tokens are in use at a time, and bursts of operations go to one token, so that its renewal races
with its uses. Some clients use forged tokens, and some renewals come from a user who is not the
renewer. The vocabulary is `harness.vocabularies.hms_tokens`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, OpType
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies.hms_tokens import BY_NAME, Cancel, Issue, Renew, TokenCall, Verify
from workloads.contention import Mix, burst_option, draw_burst, draw_kind, parse_mix

KINDS: Final = tuple(BY_NAME)
DEFAULT_MIX: Final = "issue=8,renew=20,cancel=5,verify=67"
OWNERS: Final = ("alice", "bob")
RENEWER: Final = "yarn"
STRANGER: Final = "mallory"
METASTORES_MAX: Final = 840
"""A multiple of the numbers 1 to 8, so that a draw modulo the number of metastores is fair."""
TOKENS_MAX: Final = 1000
FORGED: Final = "alice:yarn:0:0:0:0:forged"


@dataclasses.dataclass(frozen=True, slots=True)
class _TokenOps:
    """An endless generator. `tokens` has the newest tokens; the next `left` calls use `hot`."""

    mix: Mix
    most: int
    burst: int
    false_percent: int
    tokens: tuple[str, ...] = ()
    hot: str = ""
    left: int = 0

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        rng = ctx.random
        together = self.left > 0
        state = self if together else self._next_burst(rng)
        call = self._call(state.hot, rng)
        draft = Draft(call.f, call.asked(), process, None, together=together)
        return Emit(draft, dataclasses.replace(state, left=state.left - 1))

    def update(self, ctx: Context, event: Op) -> Generator:
        """Add a newly issued token to `tokens`, and keep only the `most` newest tokens."""
        del ctx
        if event.type is not OpType.OK or event.f != Issue.f:
            return self
        tokens = (*self.tokens, str(event.value["token"]))[-self.most :]
        return dataclasses.replace(self, tokens=tokens)

    def _next_burst(self, rng: random.Random) -> _TokenOps:
        left = draw_burst(self.burst, rng)
        hot = rng.choice(self.tokens) if self.tokens else ""
        return dataclasses.replace(self, left=left, hot=hot)

    def _call(self, hot: str, rng: random.Random) -> TokenCall:
        kind = draw_kind(self.mix, rng)
        is_false = rng.randrange(100) < self.false_percent
        if kind == Issue.f or not hot:
            return Issue(rng.choice(OWNERS), RENEWER)
        if kind == Renew.f:
            return Renew(hot, STRANGER if is_false else RENEWER)
        if kind == Cancel.f:
            return Cancel(hot)
        return Verify(_forged(hot) if is_false else hot, rng.randrange(METASTORES_MAX))


def _forged(token: str) -> str:
    """Return a copy of the token with a wrong password."""
    return f"{token[:-1]}{'0' if token[-1] != '0' else '1'}"


class HmsTokensWorkload(Workload, target="hive", usual={"op_timeout_s": 8.0}):
    """Issue, renew and cancel few tokens, and verify them at all metastores."""

    api_version = API_VERSION
    name = "hms-tokens"
    doc = "delegation tokens of a metastore: issue, renew, cancel, verify anywhere"
    vocabulary = "hms-tokens"
    options = (
        Option("tokens", 10, "number of newest tokens that clients use", within=(1, TOKENS_MAX)),
        Option("mix", DEFAULT_MIX, "weights of the kinds of operation"),
        Option(
            "false-percent",
            5,
            "percentage of uses that are forged, and of renewals by other users",
            (0, 100),
        ),
        burst_option(6, "operations at once on one token"),
    )
    checkers = (
        "hms-tokens",
        "hms-failover",
        "liveness",
        "crash",
        "stats",
    )

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        return _TokenOps(
            mix=parse_mix(str(options["mix"]), KINDS),
            most=int(options["tokens"]),
            burst=int(options["burst"]),
            false_percent=int(options["false_percent"]),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Verify only a forged token, since a probe cannot learn the token that `Issue` returns."""
        del case
        return (Request.of(Issue(OWNERS[0], RENEWER)), Request.of(Verify(FORGED, attempt + retry)))

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Verify(FORGED, 0)),)
