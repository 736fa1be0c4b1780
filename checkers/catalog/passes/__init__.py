"""Passes over a catalog history that find a contradiction without a search, in near-linear time.

Catalog answers contain ids and versions, so two or three answers are enough to show most
violations. Examples are a version that decreased, a table that came back, and a list without a
table that answers show before and after the list. Each pass checks the statements of operations
about one table or one name against a small model (a *view*). A view allows every change that no
answer shows. Every view is a projection: if the history is linearizable, so are the statements in
the view, even if some of them are left out. So the operations that a pass names are a
counterexample by themselves, which the verifier confirms by enumeration.

`refute` runs all passes and returns the contradiction whose last operation returned first. If it
returns `None`, nothing is proven, and the search decides. `replay` is the only pass that can prove
a history valid; it tries the order of the revisions in the answers. `narrowed` proves nothing, but
shortens the intervals in which a search places operations.
"""

from checkers.catalog.passes.contradiction import Contradiction
from checkers.catalog.passes.narrowing import narrowed
from checkers.catalog.passes.refutation import conflict, contradictions, refute
from checkers.catalog.passes.revisions import replay, replayed

__all__ = [
    "Contradiction",
    "conflict",
    "contradictions",
    "narrowed",
    "refute",
    "replay",
    "replayed",
]
