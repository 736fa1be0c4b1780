"""The known, permanent differences from real Kudu, which `harness twin` reports with reasons.

Any other difference is a defect of this target. `docs/twin.md` lists the same differences.
"""

from __future__ import annotations

from typing import Final

from harness.plugins import KnownDifference

KUDU: Final = "apache-kudu"
DIFFERENCES: Final = (
    KnownDifference(
        name="empty-column",
        original=KUDU,
        rows=('request/* alter *"add",""*',),
        why="an alter that adds a column without a name kills the leader of Kudu 1.18.1 (a failed "
        "CHECK in Schema's constructor); here the master refuses it, as Kudu refuses such a create",
    ),
    KnownDifference(
        name="safe-time",
        original=KUDU,
        rows=("message/scan/TIMED_OUT", "message/scan/UNKNOWN_ERROR"),
        # consensus/time_manager.cc, `WaitUntilSafe`
        why="safe times come with heartbeats in Kudu, so a follower whose safe time is older than "
        "1.5 heartbeats refuses a snapshot at once, with TIMED_OUT and no code; here they come "
        "from the log (time_manager.py), and the follower waits for an entry",
    ),
    KnownDifference(
        name="look-before-request",
        original=KUDU,
        rows=("message/*/NOT_THE_LEADER", "message/*/NOT_THE_LEADER/ILLEGAL_STATE"),
        why="answers of Kudu have no terms, so its client here looks at the server's term before "
        "each request, and rarely sends one to a server that does not lead",
    ),
)
