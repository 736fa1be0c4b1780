"""Pure functions from the outcome of a call to its proof about the operation.

| outcome of a change                                                     | class            |
|-------------------------------------------------------------------------|------------------|
| answered                                                                | ok               |
| AlreadyExists, NoSuchObject, InvalidOperation, InvalidObject at first    | fail             |
| the same after an attempt that may have been carried out                | info             |
| MetaException, no answer                                                | info             |
| any of these, caused by a failed database                               | info             |
| MetaException, caused by a duplicate key                                | fail             |
| no connection                                                           | fail             |

Refusals of tokens are refusals too. Where requests carry ids that the metastore remembers, a
refusal is final even after other attempts; calls about tokens carry none.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from harness.vocabularies import hms_tokens
from targets.hive.api import META, REFUSALS, MetastoreError

INTERNAL: Final = "TApplicationException"
"""What a real metastore says where it failed with what it does not declare. It proves nothing."""
_RETRIED: Final = re.compile(r"JDO|IO|TProtocol|TTransport")
_DUPLICATE: Final = re.compile(r"duplicate key|unique constraint", re.IGNORECASE)
_DATABASE_FAILED: Final = re.compile(
    r"FATAL:|PSQLException|I/O error|REMOTE database|database \S+: "
)
"""Real metastores say NoSuchObject, or that a table's database is of another kind, where they could
not read it; so these say nothing of the table."""
RESULTS: Final = {
    "AlreadyExistsException": "already-exists",
    "NoSuchObjectException": "no-such-object",
    "InvalidOperationException": "invalid-operation",
    "InvalidObjectException": "invalid-object",
    "MetaException": "meta-exception",
    "InvalidToken": hms_tokens.INVALID_TOKEN,
    "AccessControlException": hms_tokens.ACCESS_CONTROL,
}


class Proof(enum.Enum):
    """The effect that an attempt with an exception had."""

    NOTHING = "nothing"
    UNKNOWN = "unknown"


def retries(error: MetastoreError) -> bool:
    """Whether `RetryingMetaStoreClient` sends the call once more."""
    if error.kind == INTERNAL:
        return error.message.startswith("Internal error")
    is_duplicate = _DUPLICATE.search(error.message) is not None
    return error.kind == META and not is_duplicate and bool(_RETRIED.search(error.message))


def proof_of(error: MetastoreError) -> Proof:
    """Classify the attempt that was answered with this exception."""
    if _DATABASE_FAILED.search(error.message):
        return Proof.UNKNOWN
    if error.kind in REFUSALS or _DUPLICATE.search(error.message):
        return Proof.NOTHING
    return Proof.UNKNOWN


def result_of(error: MetastoreError) -> str:
    """The word of the vocabulary for an exception."""
    return RESULTS.get(error.kind, error.kind)
