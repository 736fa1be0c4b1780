"""The vocabulary `follower-reads`: `ddl`, plus reads that limit the age of the answer.

Any replica of the catalog may answer such a read, from its own state. The answer includes every
change that was acknowledged more than `bound_ns` before the answer was made, and `bound_ns` does
not exceed the limit of the read. Answers contain `bound_ns` and the fields of `get` and `list`. A
replica without a recent enough state refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, get_args

from harness.vocabularies import Vocabulary, ddl


class GetStale(ddl.LookCall, frozen=True):
    """A `get` of a state at most `max_staleness_ms` old."""

    f: ClassVar[str] = "get-stale"
    past: ClassVar[str] = "read"
    name: str
    max_staleness_ms: int


class ListStale(ddl.ListCall, frozen=True):
    """A `list` of a state at most `max_staleness_ms` old."""

    f: ClassVar[str] = "list-stale"
    past: ClassVar[str] = "listed"
    max_staleness_ms: int


StaleCall = GetStale | ListStale
CALLS = Vocabulary[StaleCall]("follower-reads", get_args(StaleCall))
call_of = CALLS.call_of
FRESH: Final[Mapping[str, str]] = {GetStale.f: ddl.Get.f, ListStale.f: ddl.List.f}
"""Maps each read with an age limit to the same read without the limit."""
