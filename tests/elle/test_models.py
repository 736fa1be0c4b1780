"""The hierarchy of consistency models, and the models that each anomaly refutes."""

import pytest

from checkers.elle.models import (
    ANOMALIES,
    EXISTENCE_MODELS,
    MODELS,
    boundary,
    canonical,
    existence_type,
    forbidden_by,
    friendly,
    impossible_models,
    with_implied,
)

# anomaly -> (weakest models it refutes, number of stronger models refuted with them), as in Elle
BOUNDARIES = {
    "G0": ("read-uncommitted", 24),
    "duplicate-elements": ("read-uncommitted", 24),
    "cyclic-versions": ("read-uncommitted", 24),
    "G1a": ("read-committed", 21),
    "G1b": ("read-committed", 21),
    "G1c": ("read-committed", 21),
    "dirty-update": ("read-committed", 21),
    "incompatible-order": ("read-committed", 21),
    "future-read": ("read-committed", 21),
    "garbage-read": ("read-committed", 21),
    "internal": ("read-atomic", 10),
    "lost-update": ("cursor-stability update-atomic", 11),
    "G-single": ("consistent-view", 8),
    "G-single-item": ("consistent-view repeatable-read", 8),
    "G2-item": ("repeatable-read", 3),
    "G-nonadjacent": ("snapshot-isolation", 5),
    "G-SI": ("snapshot-isolation", 5),
    "G2": ("serializable", 2),
    "write-skew": ("serializable", 2),
    "predicate-read-miss": ("serializable", 2),
    "G-single-item-process": ("strong-session-snapshot-isolation", 3),
    "G-nonadjacent-process": ("strong-session-snapshot-isolation", 3),
    "G1c-process": ("strong-session-read-committed", 5),
    "G2-process": ("strong-session-serializable", 1),
    "G-single-realtime": ("strong-snapshot-isolation", 1),
    "G2-realtime": ("strong-serializable", 0),
}


@pytest.mark.parametrize("anomaly", BOUNDARIES)
def test_boundaries(anomaly):
    edge = boundary([anomaly])

    assert BOUNDARIES[anomaly] == (" ".join(edge.not_), len(edge.also_not))


def test_the_list_of_anomalies_is_complete():
    upstream = 60  # number of names in upstream's table
    assert upstream + 1 == len(ANOMALIES)  # garbage-read exists only here


@pytest.mark.parametrize("model", EXISTENCE_MODELS)
def test_existence_refutes_its_model_first(model):
    assert (friendly(model),) == boundary([existence_type(model)]).not_


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_model_is_refuted_exactly_by_forbidden_anomalies(model):
    forbidden = forbidden_by([model])
    for anomaly in sorted(ANOMALIES):
        falls = canonical(model) in impossible_models([anomaly])
        assert falls == bool(forbidden & with_implied([anomaly])), anomaly


IMPLIED = {
    "G0": "G1c G1 G0-process G0-realtime G1c-realtime G1-process",
    "G1a": "G1",
    "G1b": "G1 G1-realtime",
    "G-single-item": "G-single G-nonadjacent-item G-nonadjacent G2-item G2 GSIb GSI G2-realtime",
    "G-nonadjacent-item-process": "G2-item-process G-nonadjacent-process G2-item-realtime",
    "incompatible-order": "G1a G1",
    "dirty-update": "G1a",
    "future-read": "G1c G1",
    "lost-update": "write-skew G2-item G2",
    "write-skew": "G2",
}


@pytest.mark.parametrize("anomaly", IMPLIED)
def test_implications(anomaly):
    assert set(IMPLIED[anomaly].split()) <= with_implied([anomaly])
    assert "G0" not in with_implied([anomaly]) - {anomaly}
