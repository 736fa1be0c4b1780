"""Linearizability checks in pure Python, with searches, proofs and minimal cores.

    outcome = check_operations(Register(), [Operation(0, Write(1), 0, None, 10), ...])

`model` defines operations and specifications. `direct` decides without a search if values are
unique. `problem` prepares a history, and `search` and `frontier` explore it within the limits of
`clock`. `explain` explains a failure, and `core` finds the few operations that contradict each
other. `proof` proves a verdict, and `verify` checks the proof independently.

The searches follow Wing and Gong (1993), Lowe (2017) and Horn and Kroening (2015), with two
additions: they absorb reads without branching, and drop dominated configurations.
"""

from checkers.linearizability.api import check_events, check_operations
from checkers.linearizability.direct import Decision
from checkers.linearizability.explain import Failure, Survivor
from checkers.linearizability.model import (
    UNKNOWN,
    Event,
    Limits,
    Model,
    ModelError,
    Operation,
    Projection,
    Result,
    Unknown,
    observations,
)
from checkers.linearizability.nondeterministic import NondeterministicModel
from checkers.linearizability.proof import Certificate, certify
from checkers.linearizability.rounds import CheckOutcome
from checkers.linearizability.verify import CertificateError

__all__ = [
    "UNKNOWN",
    "Certificate",
    "CertificateError",
    "CheckOutcome",
    "Decision",
    "Event",
    "Failure",
    "Limits",
    "Model",
    "ModelError",
    "NondeterministicModel",
    "Operation",
    "Projection",
    "Result",
    "Survivor",
    "Unknown",
    "certify",
    "check_events",
    "check_operations",
    "observations",
]
