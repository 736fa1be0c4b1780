"""Direct methods: polynomial decisions for objects whose values are unique.

A direct method reads the verdict off the intervals of the operations, without a search: `zones` for
registers, `sets` for sets that only grow, `queues` for queues and bags. `Model.decide` calls it.
Its verdict is proven like that of a search: an order is replayed, and a core is
enumerated by `verify`. A method that is not exact for a history says nothing, and a search follows.
"""

from checkers.linearizability.direct.decision import Decision

__all__ = ["Decision"]
