"""The reports that are due from this tablet server to one master: a pure state machine.

A tablet server has one `ReportTracker` per master, as Kudu has one heartbeat thread per master
(`tserver/heartbeater.cc`). A tablet that changed is *dirty* for a master until the master has
acknowledged a report with the change. No change is therefore lost if a heartbeat is lost or the
leader changes. The rules:

* Initially, a registration and a full report are due.
* A dirty mark has the number of the next report. It is cleared when the master acknowledges a
  report with that number or a later one (`processed_sequence`). A failed heartbeat clears no mark.
* A full report is due if the master asks for one. It is also due if an answer shows that the master
  leads in a later term than the one in which it last acknowledged a full report. (Kudu checks
  whether the flag `leader_master` turns from false to true. It thereby misses a leader that lost
  and regained its leadership between two heartbeats.)
* Incremental reports go only to a master that leads, because followers drop reports. A master that
  becomes leader says so in its next answer, and then gets a full report.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from targets.kudu.messages import TSHeartbeatResponse


class ReportKind(enum.Enum):
    """The kind of report in the next heartbeat."""

    NONE = "none"
    INCREMENTAL = "incremental"
    FULL = "full"


class FullOn(enum.Enum):
    """The event that makes a full report due, apart from a start and a master's request."""

    LATER_TERM = "later term"  # the master leads in a later term than at the last full report
    FLIP = "flip"  # the master's answer turns from follower to leader (defect LEADER-FLAP-ABA)
    NOTHING = "nothing"  # only changes are reported (defects KUDU-1374 and KUDU-1353)


@dataclasses.dataclass(frozen=True, slots=True)
class BeatPlan:
    """One heartbeat to send. `tablet_ids` are the tablets of an incremental report, sorted."""

    register: bool
    kind: ReportKind
    sequence_number: int
    tablet_ids: tuple[str, ...]


class ReportTracker:
    """The registration and the reports that are due to one master."""

    def __init__(
        self, *, failures_before_backoff: int, full_on: FullOn = FullOn.LATER_TERM
    ) -> None:
        self._full_on = full_on
        self._failures_before_backoff = failures_before_backoff
        self._needs_register = True
        self._needs_full = True
        self._leads = False  # whether the master led when it last answered
        # The newest term in which the master, as leader, acknowledged a full report.
        self._full_report_term = -1
        self._next_sequence = 0
        # tablet id -> number of the first report that contains its last change
        self._dirty: dict[str, int] = {}
        self._failures = 0
        self._unhandled = 0  # consecutive reports that the leading master did not handle

    @property
    def dirty(self) -> dict[str, int]:
        return dict(self._dirty)

    @property
    def failures(self) -> int:
        return self._failures

    @property
    def beat_now(self) -> bool:
        """Whether to send the next heartbeat at once, without waiting for the interval.

        After too many failures or unhandled reports in a row, heartbeats wait for the interval,
        because faster ones would only burden a master in trouble.
        """
        limit = self._failures_before_backoff
        if self._failures >= limit or self._unhandled >= limit:
            return False
        return self._needs_register or self._needs_full or (self._leads and bool(self._dirty))

    @property
    def leads(self) -> bool:
        """Whether the master answered the last heartbeat as leader."""
        return self._leads and self._failures == 0

    def forget(self, tablet_ids: Iterable[str]) -> None:
        """Clear dirty marks because another master acknowledged the report (defect KUDU-1374)."""
        for tablet_id in tablet_ids:
            self._dirty.pop(tablet_id, None)

    def mark_dirty(self, tablet_id: str) -> None:
        """Record that the tablet's state, term, leader, configuration or schema has changed."""
        self._dirty[tablet_id] = self._next_sequence

    def plan(self) -> BeatPlan:
        sequence = self._next_sequence
        self._next_sequence += 1
        if self._needs_full:
            return BeatPlan(self._needs_register, ReportKind.FULL, sequence, ())
        if not self._leads:
            return BeatPlan(self._needs_register, ReportKind.NONE, sequence, ())
        return BeatPlan(
            self._needs_register, ReportKind.INCREMENTAL, sequence, tuple(sorted(self._dirty))
        )

    def failed(self) -> None:
        """Record that a heartbeat failed. Its registration and report remain due."""
        self._failures += 1

    def answered(self, plan: BeatPlan, response: TSHeartbeatResponse) -> None:
        """Record that the heartbeat of `plan` was answered without an error."""
        self._failures = 0
        self._needs_register = response.needs_reregister
        acknowledged = (
            plan.kind is not ReportKind.NONE and response.processed_sequence >= plan.sequence_number
        )
        if acknowledged:
            self._dirty = {
                tablet: first
                for tablet, first in self._dirty.items()
                if first > response.processed_sequence
            }
        term = response.meta.term
        if acknowledged and plan.kind is ReportKind.FULL:
            self._full_report_term = max(self._full_report_term, term)
        flipped = response.leader_master and not self._leads
        self._leads = response.leader_master
        if acknowledged or not self._leads:
            self._unhandled = 0
        elif plan.kind is not ReportKind.NONE:
            self._unhandled += 1
        match self._full_on:
            case FullOn.LATER_TERM:
                due = self._leads and term > self._full_report_term
            case FullOn.FLIP:
                owed = flipped or (self._needs_full and self._leads)
                due = owed and not (acknowledged and plan.kind is ReportKind.FULL)
            case FullOn.NOTHING:
                due = False
        self._needs_full = due or response.needs_full_tablet_report
