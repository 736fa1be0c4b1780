"""Transactional isolation: infer dependencies from what transactions saw, and find cycles."""

from checkers.elle.check import (
    ElleResult,
    check_closed_predicate,
    check_list_append,
    check_rw_register,
)
from checkers.elle.decide import (
    decide_closed_predicate,
    decide_list_append,
    decide_rw_register,
)
from checkers.elle.findings import Case, Reason, Step
from checkers.elle.infer.columns import Transaction

__all__ = [
    "Case",
    "ElleResult",
    "Reason",
    "Step",
    "Transaction",
    "check_closed_predicate",
    "check_list_append",
    "check_rw_register",
    "decide_closed_predicate",
    "decide_list_append",
    "decide_rw_register",
]
