"""What all parts of the Raft core share: the persistent state, and the step that is under way."""

from __future__ import annotations

import dataclasses

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import Entry


@dataclasses.dataclass(slots=True, kw_only=True)
class CoreOptions:
    """The limits the core works by. `leader_alive_ns` is the shortest election timeout; a peer that
    was silent for `failed_ns` has failed; with `tablet_copy` servers without a replica get one.
    """

    leader_alive_ns: int = 1_500_000_000
    step_down_ns: int = 2_250_000_000
    batch_bytes_max: int = 1024 * 1024
    pre_election: bool = True
    failed_ns: int = 300_000_000_000
    tablet_copy: bool = False


class RaftState:
    """Term, vote and log; the effects of the running step are added to `effects`."""

    def __init__(
        self,
        uuid: str,
        group_id: str,
        *,
        term: int,
        voted_for: str | None,
        log: MemoryLog,
        options: CoreOptions,
    ) -> None:
        assert log.last.term <= term, f"log of term {log.last.term}, vote state {term}"
        self.uuid = uuid
        self.group_id = group_id
        self.term = term
        self.voted_for = voted_for
        self.log = log
        self.options = options
        self.now_ns = 0
        self.effects: list[ev.Effect] = []

    def is_stranger(self, uuid: str) -> bool:
        """Whether somebody is no member by the active configuration, as far as it is known here."""
        return all(peer.uuid != uuid for peer in self.log.configs.active.peers)

    def save_meta(self) -> None:
        """Make term, vote and committed configuration durable."""
        meta = ev.SaveMeta(self.term, self.voted_for, self.log.configs.committed)
        if self.effects and type(self.effects[-1]) is ev.SaveMeta:
            self.effects[-1] = meta
        else:
            self.effects.append(meta)

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries to the log."""
        self.effects.append(self.log.append(entries))

    def commit_to(self, index: int) -> None:
        """Commit up to `index`, unless that is committed already."""
        if index <= self.log.commit_index:
            return
        if self.log.commit_to(index):
            self.save_meta()
        self.effects.append(ev.Committed(index))
