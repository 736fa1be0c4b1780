"""The vocabulary `lease`: one lock, free at first, that a client holds until its lease ends.

An acquire asks for the lock for `lease_ms`. Its answer has the field `value`: the fencing token, a
number that is higher than all earlier tokens. Until the lease ends or its client releases the lock,
every other acquire is a `fail`, and so is a release by a client that does not hold the lock.
Clients do not renew leases.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Acquire(Call, frozen=True):
    """Take the lock for `lease_ms`. The `value` of the answer is the fencing token."""

    f: ClassVar[str] = "acquire"
    mutates: ClassVar[bool] = True
    lease_ms: int


class Release(Call, frozen=True):
    """Release the lock, which this client holds."""

    f: ClassVar[str] = "release"
    mutates: ClassVar[bool] = True


CALLS = Vocabulary[Acquire | Release]("lease", (Acquire, Release))
