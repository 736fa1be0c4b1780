"""The results of inference, which are edges between transactions, their reasons, and anomalies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkers.elle.infer.columns import IntArray
from checkers.elle.search.graph import GraphBuilder


class Refused(Exception):  # noqa: N818 - not an error: it makes the verdict unknown
    """Nothing can be inferred from the history, e.g. because two writes are indistinguishable."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why one transaction precedes another: the relation, a sentence and its data.

    `template` is the sentence. Its placeholders `{source}` and `{target}` are the two transactions.
    The other placeholders are the fields with the same names.
    """

    relation: str
    template: str
    key: str | None = None
    value: str | None = None
    next_value: str | None = None

    def tell(self, source: str, target: str) -> str:
        """Return the sentence for two transactions with the names `source` and `target`."""
        return self.template.format(
            source=source,
            target=target,
            key=self.key,
            value=self.value,
            next_value=self.next_value,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a cycle, from the op with index `source` to the op with index `target`."""

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
    """The number of occurrences of one anomaly; `explain` describes the i-th occurrence."""

    count: int
    explain: Callable[[int], Case]


Explain = Callable[[int, int, int], Reason]
"""A function of (source, target, relation) that explains why `source` precedes `target`."""


@dataclass(slots=True)
class Inference:
    """The dependencies and anomalies that were inferred from a history.

    If two transactions have several relations, a step between them is named after the relation
    that comes first in `preference`. `refine` is called only if there are cycles. It receives the
    transactions of all components with cycles. It returns the smaller graph of the original Elle,
    or `None` to keep the present graph.
    """

    builder: GraphBuilder
    findings: dict[str, Finding]
    explain: Explain
    preference: tuple[int, ...]
    notes: tuple[str, ...] = ()
    refine: Callable[[IntArray], GraphBuilder | None] | None = None

    def add(self, type_: str, hits: IntArray, explain: Callable[[int], Case]) -> None:
        """Record an anomaly of type `type_` if there are `hits`. `explain` describes one hit."""
        if len(hits):
            self.findings[type_] = Finding(len(hits), lambda i: explain(int(hits[i])))
