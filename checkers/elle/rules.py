"""The condition that each consistency model puts on the order of versions.

Elle does not look for every violation of every model, so the absence of anomalies does not prove a
model. A model is found `valid` only by one of these tables:

* `RULES`: a `Rule` says exactly when a history obeys the model (after Adya, 1999; Cerone, Bernardi,
  Gotsman, 2015; Cerone, Gotsman, "Analysing snapshot isolation", 2018; Biswas, Enea, 2019).
* `MEANS`: the model means the same as a model that has a rule.
* `PROVEN_BY`: a stronger model has a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "writes", "reads", "atomic", "update", "causal", "parallel", "prefix", "si", "serial"
]
Order = Literal["", "process", "realtime"]


@dataclass(frozen=True, slots=True)
class Rule:
    """The condition of a model: some total order of each key's versions must satisfy it.

    For every kind of rule, the edges ww, wr (except for the kind `writes`) and `order` (of
    processes or real time) must form no cycle. Some kinds add a condition on each rw edge from a
    reader S to a writer T:

    * `atomic`, `update`, `causal`, `parallel`: T must not be visible to S. Under `atomic`, S sees
      the transactions that it read from. Under `update`, S also sees the earlier writers of the
      keys that it wrote. Under `causal`, S sees everything before it by wr and `order`. Under
      `parallel`, S sees everything before it by ww, wr and `order`.
    * `prefix`, `si`: S begins before T commits, and the transactions on which T depends commit
      before T begins. The order of begins and commits must have no cycle.
    * `serial`: all edges together, including rw, must form no cycle.

    If Elle's tables do not contain this model, `base` is a model in the tables whose anomalies
    refute it.
    """

    kind: Kind
    order: Order = ""
    base: str = ""


IN_SESSIONS: Final = "causal-cerone in sessions"
"""A model that is not in Elle's tables and implies all session guarantees in these tables."""

RULES: Final[Mapping[str, Rule]] = {
    "PL-1": Rule("writes"),
    "strong-session-PL-1": Rule("writes", "process"),
    "strong-PL-1": Rule("writes", "realtime"),
    "PL-2": Rule("reads"),
    "strong-session-PL-2": Rule("reads", "process"),
    "strong-PL-2": Rule("reads", "realtime"),
    "read-atomic": Rule("atomic"),
    "update-atomic": Rule("update"),
    "causal-cerone": Rule("causal"),
    "PL-2+": Rule("parallel"),
    "parallel-snapshot-isolation": Rule("parallel"),
    "prefix": Rule("prefix"),
    "PL-SI": Rule("si"),
    "strong-session-snapshot-isolation": Rule("si", "process"),
    "strong-snapshot-isolation": Rule("si", "realtime"),
    "PL-2.99": Rule("serial"),
    "PL-3": Rule("serial"),
    "strong-session-serializable": Rule("serial", "process"),
    "PL-SS": Rule("serial", "realtime"),
    IN_SESSIONS: Rule("causal", "process", "causal-cerone"),
}

MEANS: Final[Mapping[str, str]] = {
    "1SR": "PL-3",
    "view-serializable": "PL-3",
    "session-serializable": "strong-session-serializable",
}

PROVEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "PL-CS": ("PL-2+", "PL-2.99"),
    "PL-2L": ("PL-2+",),
    "PL-MSR": ("PL-SI",),
    "PL-FCV": ("PL-SI",),
    "PL-3U": ("PL-3",),
    "monotonic-atomic-view": ("read-atomic", "PL-2.99"),
    "linearizable": ("PL-SS",),
    "sequential": ("strong-session-serializable",),
    "causal": (IN_SESSIONS,),
    "PRAM": (IN_SESSIONS,),
    "writes-follow-reads": (IN_SESSIONS,),
    "monotonic-reads": (IN_SESSIONS,),
    "monotonic-writes": (IN_SESSIONS,),
    "read-your-writes": (IN_SESSIONS,),
}
"""Maps models without a complete rule to the weakest models that imply them.

Plain reads and writes have no cursors (cursor-stability, PL-CS). The definitions of PL-2L, PL-MSR,
PL-FCV and PL-3U need the times at which transactions began. The session guarantees are defined for
operations on single objects, not for transactions.
"""


def promises_of(model: str) -> tuple[str, ...]:
    """Return the options of `RegisterOptions` that `model` implies for single registers.

    Under read-committed and stronger models, a transaction that read a version of a key can write
    only a later version of this key. Under snapshot isolation with sessions or real time, a later
    transaction sees a later snapshot.
    """
    rule = RULES.get(model)
    if rule is None or rule.kind in ("writes", "atomic", "update", "causal"):
        return ()
    later = {"process": ("sequential_keys",), "realtime": ("linearizable_keys",), "": ()}
    return ("wfr_keys", *(later[rule.order] if rule.kind in ("si", "serial") else ()))
