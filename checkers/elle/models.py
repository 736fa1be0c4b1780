"""Elle's tables of anomalies and consistency models, from which the refuted models follow.

`IMPLIES` lists the anomalies that each anomaly implies. `WEAKER` lists the weaker models that a
model implies. `FORBIDS` lists the anomalies that a model itself rules out. An anomaly refutes every
model that forbids it or an anomaly that it implies, and every stronger model.

Sources: Adya, "Weak Consistency" (1999); Adya, Liskov, O'Neil, "Generalized Isolation Level
Definitions" (2000); Cerone, Bernardi, Gotsman (2015); Bailis et al. (2013); Daudjee, Salem (2004,
2006). The tables follow jepsen-io/elle (`consistency_model.clj` at ccdee6f).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import UsageError

SUFFIXES: Final = ("", "-process", "-realtime")

_CYCLES: Final = (
    "G0",
    "G1c",
    "G-single-item",
    "G-single",
    "G-nonadjacent-item",
    "G-nonadjacent",
    "G2-item",
    "G2",
)

CYCLE_TYPES: Final = frozenset(name + suffix for name in _CYCLES for suffix in SUFFIXES)

UNKNOWN_TYPES: Final = frozenset({"empty-transaction-graph", "cycle-search-timeout"})
"""Signs of an incomplete check. Without other anomalies, the verdict is unknown."""

_IMPLIES_CYCLIC: Final[Mapping[str, tuple[str, ...]]] = {
    "G0": ("G1c",),
    "G1c": ("G1",),
    "G1": (),
    "G-single-item": ("G-single", "G-nonadjacent-item"),
    "G-single": ("G-nonadjacent",),
    "G-nonadjacent-item": ("G-nonadjacent", "G2-item"),
    "G-nonadjacent": ("G2",),
    "G2-item": ("G2",),
    "G2": (),
}

_IMPLIES_PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    "G1a": ("G1",),
    "G1b": ("G1",),
    "G-single": ("GSIb",),
    "GSIa": ("GSI",),
    "GSIb": ("GSI",),
    "incompatible-order": ("G1a",),
    "dirty-update": ("G1a",),
    "garbage-read": ("G1a",),
    "future-read": ("G1c",),
    "lost-update": ("write-skew", "G2-item"),
    "write-skew": ("G2",),
}


def _implications() -> dict[str, frozenset[str]]:
    edges: dict[str, set[str]] = {}
    for name, implied in _IMPLIES_CYCLIC.items():
        for position, suffix in enumerate(SUFFIXES):
            targets = edges.setdefault(name + suffix, set())
            targets.update(other + suffix for other in implied)
            if position + 1 < len(SUFFIXES):
                targets.add(name + SUFFIXES[position + 1])
    for name, implied in _IMPLIES_PLAIN.items():
        edges.setdefault(name, set()).update(implied)
    return {name: frozenset(targets) for name, targets in edges.items()}


IMPLIES: Final[Mapping[str, frozenset[str]]] = _implications()

ALIASES: Final[Mapping[str, str]] = {
    "read-uncommitted": "PL-1",
    "read-committed": "PL-2",
    "cursor-stability": "PL-CS",
    "monotonic-view": "PL-2L",
    "monotonic-snapshot-read": "PL-MSR",
    "consistent-view": "PL-2+",
    "forward-consistent-view": "PL-FCV",
    "repeatable-read": "PL-2.99",
    "update-serializable": "PL-3U",
    "snapshot-isolation": "PL-SI",
    "conflict-serializable": "PL-3",
    "serializable": "PL-3",
    "strict-serializable": "PL-SS",
    "strong-serializable": "PL-SS",
    "strong-session-read-uncommitted": "strong-session-PL-1",
    "strong-session-read-committed": "strong-session-PL-2",
    "strong-read-uncommitted": "strong-PL-1",
    "strong-read-committed": "strong-PL-2",
}

_FRIENDLY: Final[Mapping[str, str]] = {canon: alias for alias, canon in ALIASES.items()}

WEAKER: Final[Mapping[str, tuple[str, ...]]] = {
    "PL-1": (),
    "PL-2": ("PL-1",),
    "PL-CS": ("PL-2",),
    "PL-2L": ("PL-2",),
    "PL-MSR": ("PL-2",),
    "PL-2+": ("PL-CS", "PL-2L"),
    "PL-FCV": ("PL-2+",),
    "monotonic-atomic-view": ("PL-2",),
    "read-atomic": ("monotonic-atomic-view",),
    "update-atomic": ("read-atomic",),
    "causal-cerone": ("read-atomic",),
    "prefix": ("causal-cerone",),
    "parallel-snapshot-isolation": ("causal-cerone", "update-atomic"),
    "PL-2.99": ("PL-CS", "monotonic-atomic-view"),
    "PL-3U": ("PL-FCV",),
    "PL-SI": (
        "PL-FCV",
        "monotonic-atomic-view",
        "PL-MSR",
        "parallel-snapshot-isolation",
        "prefix",
    ),
    "PL-3": ("PL-2.99", "PL-3U", "PL-SI", "view-serializable"),
    "view-serializable": (),
    "strong-session-PL-1": ("PL-1",),
    "strong-session-PL-2": ("PL-2", "strong-session-PL-1"),
    "strong-PL-1": ("strong-session-PL-1",),
    "strong-PL-2": ("strong-session-PL-2", "strong-PL-1"),
    "strong-session-snapshot-isolation": ("PL-SI", "strong-session-PL-2"),
    "strong-snapshot-isolation": ("strong-session-snapshot-isolation", "strong-PL-2"),
    "strong-session-serializable": ("PL-3", "strong-session-snapshot-isolation"),
    "session-serializable": ("1SR",),
    "1SR": (),
    "PL-SS": (
        "PL-3",
        "linearizable",
        "PL-SI",
        "strong-snapshot-isolation",
        "strong-session-serializable",
        "session-serializable",
    ),
    "linearizable": ("sequential",),
    "sequential": ("causal",),
    "causal": ("writes-follow-reads", "PRAM"),
    "PRAM": ("monotonic-reads", "monotonic-writes", "read-your-writes"),
    "writes-follow-reads": (),
    "monotonic-reads": (),
    "monotonic-writes": (),
    "read-your-writes": (),
}

EXISTENCE_MODELS: Final = (
    "PL-1",
    "PL-2",
    "PL-SI",
    "PL-2.99",
    "PL-3",
    "strong-session-PL-1",
    "strong-session-PL-2",
    "strong-session-snapshot-isolation",
    "strong-session-serializable",
    "strong-PL-1",
    "strong-PL-2",
    "strong-snapshot-isolation",
    "PL-SS",
)
"""Models that hold only if a certain subgraph has no cycle, the weakest first."""

_FORBIDS: Final[Mapping[str, tuple[str, ...]]] = {
    "PL-1": ("G0", "duplicate-elements", "cyclic-versions"),
    "PL-2": ("G1",),
    "PL-CS": ("G1", "G-cursor", "lost-update"),
    "PL-2L": ("G1", "G-monotonic"),
    "PL-MSR": ("G1", "G-MSR"),
    "PL-2+": ("G1", "G-single"),
    "PL-FCV": ("G1", "G-SIb"),
    "read-atomic": ("internal", "G1a", "future-read"),
    "update-atomic": ("lost-update",),
    "causal-cerone": ("internal", "G1a"),
    "prefix": ("internal", "G1a"),
    "parallel-snapshot-isolation": ("internal", "G1a"),
    "PL-2.99": ("G1", "G2-item", "lost-update"),
    "PL-3U": ("G1", "G-update"),
    "PL-SI": ("internal", "G1", "G-SI", "G-nonadjacent"),
    "PL-3": ("G1", "G2", "predicate-read-miss", "internal"),
    "strong-session-PL-1": ("G0-process",),
    "strong-session-PL-2": ("G1c-process",),
    "strong-PL-1": ("G0-realtime",),
    "strong-PL-2": ("G1c-realtime",),
    "strong-session-snapshot-isolation": ("internal", "G1-process", "G-nonadjacent-process"),
    "strong-snapshot-isolation": ("internal", "G1-realtime", "G-nonadjacent-realtime"),
    "strong-session-serializable": ("G1-process", "G2-process"),
    "PL-SS": ("G1", "G1c-realtime", "G2-realtime"),
}


def existence_type(model: str) -> str:
    """Return the name of the anomaly that refutes a model of `EXISTENCE_MODELS` without a cycle."""
    return f"{model}-cycle-exists"


FORBIDS: Final[Mapping[str, frozenset[str]]] = {
    model: frozenset(
        (*_FORBIDS.get(model, ()), *([existence_type(model)] if model in EXISTENCE_MODELS else ()))
    )
    for model in WEAKER
}


def _inverse(relation: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    inverse: dict[str, set[str]] = {}
    for source, targets in relation.items():
        for target in targets:
            inverse.setdefault(target, set()).add(source)
    return {name: frozenset(sources) for name, sources in inverse.items()}


_IMPLIED_BY: Final = _inverse(IMPLIES)
_STRONGER: Final = _inverse(WEAKER)
_FORBIDDEN_BY: Final = _inverse(FORBIDS)

MODELS: Final = frozenset(WEAKER) | frozenset(ALIASES)
"""Every name of a consistency model that a request may use."""

ANOMALIES: Final = (
    frozenset(IMPLIES)
    | frozenset(_IMPLIED_BY)
    | frozenset(_FORBIDDEN_BY)
    | frozenset({"cyclic-versions", "duplicate-elements"})
)


NEVER_FOUND: Final[Mapping[str, str]] = {
    "G-cursor": "lost-update",
    "G-monotonic": "G-single-item",
    "G-MSR": "G-nonadjacent-item",
    "G-SI": "G-nonadjacent-item",
    "G-SIb": "G-single-item",
    "G-update": "G2-item",
    "GSI": "G-single-item",
    "GSIa": "G-single-item",
    "GSIb": "G-single-item",
    "write-skew": "G2-item",
}
"""Anomalies that no check looks for, although the tables name them. Each is mapped to an anomaly to
request instead.
"""


def _closure(names: Iterable[str], relation: Mapping[str, Iterable[str]]) -> frozenset[str]:
    seen = set(names)
    todo = sorted(seen)
    while todo:
        for other in relation.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return frozenset(seen)


def canonical(model: str) -> str:
    """Return the canonical name of `model` in the tables (`serializable` -> `PL-3`)."""
    return ALIASES.get(model, model)


def friendly(model: str) -> str:
    """Return the common name of a model, given its canonical name (`PL-3` -> `serializable`)."""
    return _FRIENDLY.get(model, model)


def check_names(models: Iterable[str], anomalies: Iterable[str]) -> None:
    """Raise `UsageError` for an unknown model or anomaly, or an anomaly that no check looks for."""
    for model in models:
        if model not in MODELS:
            raise UsageError(
                f"the consistency model {model!r} is unknown; choose one of "
                f"{', '.join(sorted(MODELS))}"
            )
    for anomaly in anomalies:
        if anomaly not in ANOMALIES:
            raise UsageError(
                f"the anomaly {anomaly!r} is unknown; choose one of "
                f"{', '.join(sorted(ANOMALIES - set(NEVER_FOUND)))}"
            )
        if anomaly in NEVER_FOUND:
            raise UsageError(
                f"the anomaly {anomaly!r} is not looked for, so its absence cannot be checked; "
                f"request {NEVER_FOUND[anomaly]!r}, or a consistency model that forbids it"
            )


def with_implied(anomalies: Iterable[str]) -> frozenset[str]:
    """Return `anomalies` and all anomalies that at least one of them implies."""
    return _closure(anomalies, IMPLIES)


def with_implying(anomalies: Iterable[str]) -> frozenset[str]:
    """Return `anomalies` and all anomalies that imply at least one of them."""
    return _closure(anomalies, _IMPLIED_BY)


def forbidden_by(models: Iterable[str]) -> frozenset[str]:
    """Return the anomalies that cannot occur in a history for which all of `models` hold."""
    weaker = _closure((canonical(model) for model in models), WEAKER)
    return with_implying(anomaly for model in weaker for anomaly in FORBIDS.get(model, ()))


def prohibited(models: Iterable[str], anomalies: Iterable[str] = ()) -> frozenset[str]:
    """Return all anomalies that make a history invalid if `models` and `anomalies` are requested.

    `anomalies` are single anomalies that must not occur.
    """
    return forbidden_by(models) | with_implying(anomalies)


def impossible_models(anomalies: Iterable[str], models: Iterable[str] = ()) -> frozenset[str]:
    """Return the canonical names of all models that `anomalies` and the refuted `models` rule out.

    The result contains `models` and all models stronger than any refuted model.
    """
    refuted = {canonical(model) for model in models}
    for anomaly in with_implied(anomalies):
        refuted |= _FORBIDDEN_BY.get(anomaly, frozenset())
    return _closure(refuted, _STRONGER)


@dataclass(frozen=True, slots=True)
class Boundary:
    """The models that some anomalies refute: the weakest (`not_`), and all stronger models."""

    not_: tuple[str, ...]
    also_not: tuple[str, ...]


def boundary(anomalies: Iterable[str]) -> Boundary:
    """Return the models that `anomalies` refute, by their common names, sorted."""
    impossible = impossible_models(anomalies)
    weakest = {
        model for model in impossible if not (_closure([model], WEAKER) - {model}) & impossible
    }
    return Boundary(
        tuple(sorted(friendly(model) for model in weakest)),
        tuple(sorted(friendly(model) for model in impossible - weakest)),
    )
