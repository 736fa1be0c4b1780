"""What a replica says of itself along the run, for the harness to compare (`harness.checkpoints`).

The event `checkpoint` names the group, the index applied last and the digest of everything applied
up to there (`journal.py`); where the whole state is at hand anyway, before a snapshot is written
and after one was restored, also a digest of that. Whoever was ever at an index of a group must have
said the same of it, whatever has become of that node since.
"""

from __future__ import annotations

import hashlib
from typing import Final

from harness.env import Env
from targets.kudu.raft.journal import Journal

__all__ = ["Checkpoints"]

_DIGEST_BYTES: Final = 8


class Checkpoints:
    """Announces where one replica of a group is."""

    __slots__ = ("_env", "_every", "_group")

    def __init__(self, env: Env, group: str, *, every: int) -> None:
        """The log is told of at multiples of `every`, where all replicas pass."""
        self._env = env
        self._group = group
        self._every = every

    def applied(self, journal: Journal) -> None:
        """One more entry was applied."""
        if journal.index % self._every == 0:
            self._env.event(
                "checkpoint", group=self._group, index=journal.index, log=journal.digest.hex()
            )

    def held(self, journal: Journal, state: bytes) -> None:
        """The state machine at the end of `journal` is `state`."""
        self._env.event(
            "checkpoint",
            group=self._group,
            index=journal.index,
            log=journal.digest.hex(),
            state=hashlib.blake2b(state, digest_size=_DIGEST_BYTES).hexdigest(),
        )
