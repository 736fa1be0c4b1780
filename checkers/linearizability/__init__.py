"""Is a history linearizable? A checker in pure Python, with Porcupine's vocabulary.

    outcome = check_operations(Register(), [Operation(0, Write(1), 0, None, 10), ...])

`model` says what is checked, `problem` prepares, `search` and `frontier` explore, `explain` says
why not; `models` holds specifications. The methods are those of Wing and Gong (1993), Lowe (2017)
and Horn and Kroening (2015), with read absorption and dominance for unknown operations.
"""

from checkers.linearizability.api import CheckOutcome, check_events, check_operations
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
)

__all__ = [
    "UNKNOWN",
    "CheckOutcome",
    "Event",
    "Failure",
    "Limits",
    "Model",
    "ModelError",
    "Operation",
    "Projection",
    "Result",
    "Survivor",
    "Unknown",
    "check_events",
    "check_operations",
]
