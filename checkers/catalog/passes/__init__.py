"""Passes over a catalog history that find a contradiction without a search, in near-linear time.

Catalog answers carry ids and versions, so most violations show in two or three of them: a version
that went back, a table that came back, a list that leaves out a table that was there before and
after. Each pass looks at one kind of *view*: the statements of operations about one table or one
name, as a tiny model in which everything that no answer shows may happen freely. Every
view is a projection, that is, linearizable whenever the history is; and operations may be left out
of it. So the operations that a pass names are a counterexample by themselves, which the verifier
confirms by enumeration.

`refute` runs all passes and returns the contradiction whose last operation returned first. If it
returns `None`, nothing is proven, and the search decides. `replay` is the only pass that proves a
history valid: by the order of the revisions in its answers. `narrowed` proves neither, but gives a
search shorter intervals in which operations can have taken effect.
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
