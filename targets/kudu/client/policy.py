"""When the client sends a request again: explicit data, so that a history can be read with it.

Kudu's own client resends every master request until its deadline, mutation or not
(`client/master_proxy_rpc.cc`), which can act twice (KUDU-1537). Ours sends a mutation again only
after an answer which proves that the attempt before did nothing.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of one operation.

    `resend` also repeats a mutation after an attempt of unknown outcome, with the same request id.
    That is sound only where DDL is exactly-once (profile `strict`): the first result is kept with
    the batch, and a repetition gets it again. An operation with such an attempt is then `ok` if a
    later one succeeds and `info` otherwise, never `fail`.

    `repeat` sends every second mutation that was acknowledged once more, with the same id. It is
    the answer to the last copy that counts: exactly-once says it is the same.

    Of `late_percent` of the acknowledged mutations a copy with the same id is sent up to
    `late_s_max` later, when the operation is long over: a network that kept it may deliver it to
    another leader, or to one that has restarted. Its answer is nobody's; exactly-once says that it
    changes nothing. No copy is sent after `late_revisions_max` further changes: a target may forget
    what is so old.

    Who knows the masters of the beginning only, and found a leader among them, would be lost with
    that one if others joined since: with `relearn_s` it asks in passing, so often, who they are.
    Without `learns_masters` it knows for ever those that it was told of, as Kudu's client does.

    `first_leader_wins` is switch LEADER-PICK: the first master that claims to lead is believed.
    """

    resend: bool = False
    repeat: bool = False
    late_percent: int = 0
    late_s_max: float = 12.0
    late_revisions_max: int = 2000
    attempts_max: int = 50
    relearn_s: float | None = None
    learns_masters: bool = True
    first_leader_wins: bool = False
    mutation_attempt_timeout_s: float = 10.0  # Kudu's limit of a single RPC
    read_attempt_timeout_s: float = 2.0  # below the operation's, so that a new leader is tried
    backoff_step_s: float = 0.05
    backoff_max_s: float = 0.5

    def backoff_s(self, attempt: int) -> float:
        """The pause after the `attempt`-th attempt in a row (from 1): linear, as in Kudu."""
        return min(self.backoff_step_s * attempt, self.backoff_max_s)
