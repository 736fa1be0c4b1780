"""The results of inference for the search: edges, anomalies, and reasons for edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkers.elle.infer.columns import IntArray
from checkers.elle.search.graph import GraphBuilder


class Refused(Exception):  # noqa: N818 - not an error: the history cannot be judged, and says why
    """The history does not allow inference, e.g. because two writes are indistinguishable."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why one transaction precedes another: the relation, a sentence, and its data.

    `template` has `{source}` and `{target}` for the transactions and the names of the other fields
    for what they hold.
    """

    relation: str
    template: str
    key: str | None = None
    value: str | None = None
    next_value: str | None = None

    def tell(self, source: str, target: str) -> str:
        """The sentence, with names for the two transactions."""
        return self.template.format(
            source=source,
            target=target,
            key=self.key,
            value=self.value,
            next_value=self.next_value,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a cycle: from the op with index `source` to the one with index `target`."""

    source: int
    target: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Case:
    """One occurrence of an anomaly.

    `text` is whole sentences; `operations` are indices of the invocations; `steps` and
    `drawing` (SVG) are there for cycles.
    """

    type: str
    text: tuple[str, ...]
    operations: tuple[int, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    drawing: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """All occurrences of one anomaly; only the shown ones are put into words."""

    count: int
    explain: Callable[[int], Case]


Explain = Callable[[int, int, int], Reason]
"""Why one transaction precedes another one by a relation: the reason behind an edge."""


@dataclass(slots=True)
class Inference:
    """The result of inference.

    `preference` orders the relations that may explain an edge. `refine`, if there is one, makes a
    graph with fewer edges from the transactions that are on cycles: what it leaves out only saved
    work as long as there were none.
    """

    builder: GraphBuilder
    findings: dict[str, Finding]
    explain: Explain
    preference: tuple[int, ...]
    notes: tuple[str, ...] = ()
    refine: Callable[[IntArray], GraphBuilder | None] | None = None

    def add(self, type_: str, hits: IntArray, explain: Callable[[int], Case]) -> None:
        """Record the anomaly if there are `hits`; `explain` puts one of them into words."""
        if len(hits):
            self.findings[type_] = Finding(len(hits), lambda i: explain(int(hits[i])))
