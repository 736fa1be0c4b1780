"""The order of versions that each consistency model requires, for `orders` and `decide`.

Elle's tables (`models`) say which anomalies refute a model. They do not say when a model holds: for
some models, no anomaly or not every violation is looked for. A model's verdict is `valid` only by
one of these:

* a `Rule`, which says exactly when a history obeys the model (after Adya, 1999; Cerone, Bernardi,
  Gotsman, 2015; Cerone, Gotsman, "Analysing snapshot isolation", 2018; Biswas, Enea, 2019);
* `MEANS`: another name for a model that has a rule. One-copy and conflict serializability have the
  same meaning for a history of answers;
* `PROVEN_BY`: a stronger model with a rule. If the stronger model does not hold, the verdict is
  `unknown`.
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
    """A model's condition, which some total order of each key's versions must satisfy.

    There is no cycle of ww, the `order` of processes or time, and (unless the kind is `writes`) wr.
    Each further `kind` adds a condition, where S -> T is an rw from a reader S to a writer T:

    * `atomic`, `update`, `causal`, `parallel`: T is not visible to S. Under `atomic`, S sees the
      transactions that it read from; under `update`, also earlier writers of the keys that S wrote;
      under `causal`, everything before S by wr and `order`; under `parallel`, everything before S
      by ww, wr and `order`.
    * `prefix`, `si`: there is no cycle of these edges: S begins before T commits, and the
      transactions that T depends on commit before T begins (`prefix`: ww orders only commits).
    * `serial`: there is no cycle at all.

    `base` is the model whose anomalies break this one, if Elle's tables do not contain this one.
    """

    kind: Kind
    order: Order = ""
    base: str = ""


IN_SESSIONS: Final = "causal-cerone in sessions"
"""Not a model of Elle's, but all of Elle's session guarantees follow from it."""

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
"""Models that no rule covers completely, with the weakest models that imply them. A history of
plain reads and writes has no cursors (cursor-stability). The views of PL-2L, PL-MSR, PL-FCV and
PL-3U need the times at which transactions began. Sessions of single objects have no
transactions."""


def promises_of(model: str) -> tuple[str, ...]:
    """The options of `RegisterOptions` that a model implies for single registers.

    From read-committed on, a transaction that read a version writes a later version (otherwise
    there is a cycle of ww and wr). Under snapshot isolation with sessions or real time, a later
    transaction sees a later snapshot.
    """
    rule = RULES.get(model)
    if rule is None or rule.kind in ("writes", "atomic", "update", "causal"):
        return ()
    later = {"process": ("sequential_keys",), "realtime": ("linearizable_keys",), "": ()}
    return ("wfr_keys", *(later[rule.order] if rule.kind in ("si", "serial") else ()))
