"""Pure functions that decide what the outcome of a call proves about the operation.

| outcome of a change                                                     | class            |
|-------------------------------------------------------------------------|------------------|
| answered without an exception                                           | ok               |
| AlreadyExists, NoSuchObject, InvalidOperation or InvalidObject          | fail             |
| one of these four, after an attempt that may have been carried out      | info             |
| MetaException or no answer                                              | info             |
| any exception that is caused by a failed database                       | info             |
| MetaException that is caused by a duplicate key                         | fail             |
| no connection                                                           | fail             |

InvalidToken and AccessControl count like AlreadyExists. If the metastore remembers the ids of
requests, a refusal is final even after other attempts. Calls about tokens carry no request ids.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from harness.vocabularies import hms_tokens
from targets.hive.api import META, REFUSALS, MetastoreError

INTERNAL: Final = "TApplicationException"
"""With this exception, a real metastore reports an unexpected failure; the call may have run."""
_RETRIED: Final = re.compile(r"JDO|IO|TProtocol|TTransport")
_DUPLICATE: Final = re.compile(r"duplicate key|unique constraint", re.IGNORECASE)
_DATABASE_FAILED: Final = re.compile(
    r"FATAL:|PSQLException|I/O error|REMOTE database|database \S+: "
)
"""Messages of exceptions that prove nothing about a table.

If a real metastore cannot read its database, it may report that an object does not exist, or that
the database is a `REMOTE` one.
"""
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
    """The possible effect of an attempt that ended in an exception."""

    NOTHING = "nothing"
    UNKNOWN = "unknown"


def retries(error: MetastoreError) -> bool:
    """Whether `RetryingMetaStoreClient` retries the call after this error."""
    if error.kind == INTERNAL:
        return error.message.startswith("Internal error")
    is_duplicate = _DUPLICATE.search(error.message) is not None
    return error.kind == META and not is_duplicate and bool(_RETRIED.search(error.message))


def proof_of(error: MetastoreError) -> Proof:
    """Decide whether an attempt that failed with this exception had no effect."""
    if _DATABASE_FAILED.search(error.message):
        return Proof.UNKNOWN
    if error.kind in REFUSALS or _DUPLICATE.search(error.message):
        return Proof.NOTHING
    return Proof.UNKNOWN


def result_of(error: MetastoreError) -> str:
    """Return the vocabulary's word for an exception, such as `already-exists`."""
    return RESULTS.get(error.kind, error.kind)
