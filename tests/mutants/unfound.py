"""The planted defects that no default soak finds within 30 seeds, and the reasons."""

EVENTS = "needs faults that strike on events"
UNFOUND = {
    "vote-not-saved": f"a voter must be killed between two votes of one term, within ms: {EVENTS}",
    "old-terms-by-counting": f"two leaders must fall right after their first append: {EVENTS}",
    "leader-counts-before-durable": "leader and follower must lose power while the leader syncs an "
    f"entry that the others lack: {EVENTS}",
    "marks-cleared-when-sent": f"an incremental report must be lost and no other follow: {EVENTS}",
    "creates-not-resent": "equivalent: a tablet's leader has a replica that is missing copied, and "
    "a tablet that nobody created is replaced when its time is over",
    "no-full-report": "equivalent: tablet servers send a leader of a later term one unasked",
}
