"""Direct methods, which decide histories with unique values in polynomial time, without a search.

A direct method derives the verdict from the intervals of the operations. `zones`
is for registers, `sets` for sets that only grow, and `queues` for queues and bags. Its verdict is
proven like the verdict of a search. If a method is not exact for a history, it returns no verdict,
and a search follows.
"""

from checkers.linearizability.direct.decision import Decision

__all__ = ["Decision"]
