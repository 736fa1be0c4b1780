"""Known differences from real Kudu, which stay; `harness twin` shows them with these reasons.

Everything else in which this target differs from Kudu is a defect of this target.
`docs/twin.md` lists the same differences for readers.
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
)
