"""Passes over a catalog history that find a contradiction without a search, in near-linear time.

Catalog answers contain ids and versions, so two or three answers are enough to show most
violations. Examples are a version that decreased, a table that came back, and a list without a
table that answers show before and after the list.

Each pass checks statements about one table or one name against a small model (a *view*). If the
history is linearizable, every subset of these statements has a legal order in the view. So the
operations that a pass names are a counterexample, which the verifier confirms by enumeration.

`refute` runs all passes. `replay` is the only pass that can prove a history valid. `narrowed`
proves nothing, but shortens the intervals in which a search places operations.
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
