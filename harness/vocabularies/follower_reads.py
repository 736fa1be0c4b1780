"""The vocabulary `follower-reads`: that of `ddl`, and reads that say how old an answer may be.

Such a read goes to any replica of the catalog, which answers with a state that it had all to
itself: everything acknowledged `bound_ns` before the answer was made is in it, and `bound_ns` is no
more than the read allows. Their answers hold `bound_ns` and the fields of `get` and `list`; a
replica that knows of no such state refuses.
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
"""The same reads without a bound."""
