"""The results of inference for the search: edges, anomalies, and reasons for edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkers.elle.infer.columns import IntArray
from checkers.elle.search.graph import GraphBuilder


class Refused(Exception):  # noqa: N818 - not an error: the history cannot be judged, and says why
    """Nothing can be inferred from the history, e.g. because two writes are indistinguishable."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why one transaction precedes another: the relation, a sentence, and its data.

    `template` has the placeholders `{source}` and `{target}` for the transactions, and a
    placeholder with the name of each other field that it shows.
    """

    relation: str
    template: str
    key: str | None = None
    value: str | None = None
    next_value: str | None = None

    def tell(self, source: str, target: str) -> str:
        """The sentence, with the names of the two transactions."""
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

    `text` consists of whole sentences; `operations` are indices of invocations. Only cycles have
    `steps` and a `drawing` (SVG).
    """

    type: str
    text: tuple[str, ...]
    operations: tuple[int, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    drawing: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """All occurrences of one anomaly; only some of them have a description."""

    count: int
    explain: Callable[[int], Case]


Explain = Callable[[int, int, int], Reason]
"""Explains an edge: why one transaction precedes another by a relation."""


@dataclass(slots=True)
class Inference:
    """The result of inference.

    `preference` orders the relations that may explain an edge. `refine`, if given, makes a graph
    with fewer edges from the transactions on cycles. The edges that it leaves out only saved work
    in graphs without cycles.
    """

    builder: GraphBuilder
    findings: dict[str, Finding]
    explain: Explain
    preference: tuple[int, ...]
    notes: tuple[str, ...] = ()
    refine: Callable[[IntArray], GraphBuilder | None] | None = None

    def add(self, type_: str, hits: IntArray, explain: Callable[[int], Case]) -> None:
        """Record the anomaly if there are `hits`; `explain` describes one of them."""
        if len(hits):
            self.findings[type_] = Finding(len(hits), lambda i: explain(int(hits[i])))
