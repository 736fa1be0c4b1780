"""The vocabulary `lock`: one lock, free at first, that a client holds until it releases it.

An acquire that does not get the lock is a `fail`. So is a release by a client that does not hold
the lock. A system may release the lock of a client whose session is closed, but not before: until a
client asks for a release, it holds the lock.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Acquire(Call, frozen=True):
    """Take the lock for this client."""

    f: ClassVar[str] = "acquire"
    mutates: ClassVar[bool] = True


class Release(Call, frozen=True):
    """Release the lock, which this client holds."""

    f: ClassVar[str] = "release"
    mutates: ClassVar[bool] = True


CALLS = Vocabulary[Acquire | Release]("lock", (Acquire, Release))
