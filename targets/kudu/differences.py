"""The known, permanent differences from real Kudu, which `harness twin` reports with reasons.

Any other difference is a defect of this target. `docs/twin.md` lists the same differences.
"""

from __future__ import annotations

from typing import Final

from harness.plugins import KnownDifference

KUDU: Final = "apache-kudu"
_READ_FIRST: Final = ("alter", "delete", "rename")
"""Changes before which the client of real Kudu reads the table."""
_READS_LOST: Final = tuple(
    f"message/{kind}/RPC/SENT"
    for kind in (
        "get", "list", "locate", "is-alter-done", "is-create-done", "list-masters", "read", "scan",
    )
)  # fmt: skip
DIFFERENCES: Final = (
    KnownDifference(
        name="empty-column",
        original=KUDU,
        rows=('request/* alter *"add",""*',),
        why="an alter that adds a column without a name kills the leader of Kudu 1.18.1 (a failed "
        "CHECK in Schema's constructor); here the master refuses it, as Kudu refuses such a create",
    ),
    KnownDifference(
        name="empty-column-crash",
        original=KUDU,
        rows=("verdict/crash invalid", "election/changes of the leader per block"),
        why="the leader that the empty column kills counts as a crash, and has a successor",
        more="original",
        cases=("empty-column",),
    ),
    KnownDifference(
        name="safe-time",
        original=KUDU,
        rows=("message/scan/TIMED_OUT",),
        # consensus/time_manager.cc, `WaitUntilSafe`
        why="safe times come with heartbeats in Kudu, so a follower whose safe time is older than "
        "1.5 heartbeats refuses a snapshot at once, with the status TIMED_OUT; here they come "
        "from the log (time_manager.py), and the follower waits for an entry",
    ),
    KnownDifference(
        name="clean-time",
        original=KUDU,
        rows=("message/read/TABLET_NOT_RUNNING", "message/scan/TABLET_NOT_RUNNING"),
        # tablet/mvcc.cc, `CheckIsCleanTimeInitialized`
        why="a restarted replica of Kudu refuses reads until it has a clean time, from its leader "
        "or a committed write; here the log has it, so a replica reads once it has replayed it",
        more="original",
    ),
    KnownDifference(
        name="lost-at-once",
        original=KUDU,
        rows=("message/write/UNKNOWN_ERROR",),
        # consensus/pending_rounds.cc, `AbortOpsAfter`
        why="here a leader that loses its role answers waiting writes at once, as of unknown "
        "outcome; Kudu's answers them when the next leader has committed or aborted them",
        more="re-creation",
    ),
    KnownDifference(
        name="orphan-replicas",
        original=KUDU,
        rows=("permit/orphan-replicas",),
        why="Kudu may leave replicas of a table that is deleted while it is being created, and "
        "copies that their group never took in; this was never seen here",
        more="original",
    ),
    KnownDifference(
        name="look-before-request",
        original=KUDU,
        rows=("message/*/NOT_THE_LEADER", "message/*/NOT_THE_LEADER/ILLEGAL_STATE"),
        why="answers of Kudu have no terms, so its client here looks at the server's term before "
        "each request, and rarely sends one to a server that does not lead",
        more="re-creation",
    ),
    KnownDifference(
        name="unconfirmed-term",
        original=KUDU,
        rows=("message/read/NOT_THE_LEADER", "message/scan/NOT_THE_LEADER"),
        why="answers of Kudu have no terms, so its client here refuses an answer itself if the "
        "server does not lead before or after it, or if no majority confirms the term",
        more="original",
    ),
    KnownDifference(
        name="several-requests",
        original=KUDU,
        rows=("message/*/RPC/NOT_SENT", *_READS_LOST),
        why="most operations of Kudu's client here are several requests (for the term, the id, the "
        "version), each of which may find no time left; here each is one request",
        more="original",
    ),
    KnownDifference(
        name="read-before-change",
        original=KUDU,
        rows=tuple(f"outcome/{change}/failed" for change in _READ_FIRST),
        why="an alter, rename or delete of Kudu begins with a read of its id or version; if "
        "that read gets no answer, the change was never sent and failed",
        more="original",
    ),
    KnownDifference(
        name="change-at-once",
        original=KUDU,
        rows=tuple(
            row
            for change in _READ_FIRST
            for row in (f"outcome/{change}/info", f"message/{change}/RPC/SENT")
        ),
        why="here an alter, rename or delete is sent at once, so it is open (info) if no answer "
        "comes, while Kudu's client still reads",
        more="re-creation",
    ),
)
