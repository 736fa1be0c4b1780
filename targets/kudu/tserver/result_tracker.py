"""Exactly once: results of recent writes, so that a resent write gets the first answer.

Kudu's `rpc/result_tracker.h`, with one difference: results are decided when the log is applied, by
the log's timestamps. So all replicas know the same results, a new leader knows those of the old
one, and the log and its snapshots restore them. Two copies of a request may both be in the log;
only the first one takes effect.

A result is kept for `remember_responses_ttl_ms`, and a client for `remember_clients_ttl_ms` after
its last write. The latest clients are always kept: otherwise one clock that is hours ahead, and
with it the log, would remove all of them at once, and late copies would take effect again. A client
reports the number below which it has all answers, and those results are removed at once. A request
whose number has no result any more is stale: the server no longer knows whether it was applied.

Results must not be removed early, or a late copy would take effect again. So if there are too many
results, `is_full` makes the leader refuse new writes (THROTTLED). But time advances here only with
the log, so a write is accepted again once it would make room itself.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from targets.kudu.hybrid_clock import from_micros
from targets.kudu.messages import RowError
from targets.kudu.tserver import errors as limits

_US_PER_MS: Final = 1000
_AGES_SPARE: Final = 1024


class WriteResult(msgspec.Struct, frozen=True, array_like=True):
    """A write's timestamp, its place in the log, and the rows that were not written."""

    timestamp: int
    index: int
    term: int
    errors: tuple[RowError, ...] = ()


class StoredClient(msgspec.Struct, frozen=True, array_like=True):
    """A client in a snapshot; `results` are keyed by number."""

    client_id: str
    stale_before: int
    last_timestamp: int
    results: tuple[tuple[int, WriteResult], ...]


class _Client:
    __slots__ = ("last_timestamp", "results", "stale_before")

    def __init__(self) -> None:
        self.stale_before = 0
        self.last_timestamp = 0
        self.results: dict[int, WriteResult] = {}


class Results:
    """The results of one tablet. Timestamps must rise from call to call."""

    def __init__(
        self, *, results_ttl_ms: int, clients_ttl_ms: int, clients_kept: int = limits.CLIENTS_KEPT
    ) -> None:
        """Set the lifetimes of results and clients; the last `clients_kept` ones stay for ever."""
        self._clients_kept = clients_kept
        self._results_ttl = from_micros(results_ttl_ms * _US_PER_MS)
        self._clients_ttl = from_micros(clients_ttl_ms * _US_PER_MS)
        self._clients: dict[str, _Client] = {}  # in the order of their last write
        self._by_age: deque[tuple[int, str, int]] = deque()  # timestamp, client, number
        self.count = 0
        self._row_errors = 0  # number of row errors in all results

    @property
    def is_full(self) -> bool:
        """Whether new writes must wait until old results are removed."""
        return (
            self.count >= limits.RESULTS_MAX
            or self._row_errors >= limits.ROW_ERRORS_MAX
            or len(self._clients) >= limits.CLIENTS_MAX
        )

    def makes_room(self, timestamp: int) -> bool:
        """Report whether a write at `timestamp` would expire all surplus results.

        These include results of writes that were accepted at the same time.
        """
        count, row_errors = self.count, self._row_errors
        for age in self._by_age:
            if count < limits.RESULTS_MAX and row_errors < limits.ROW_ERRORS_MAX:
                break
            if age[0] > timestamp - self._results_ttl:
                return False
            if self._is_kept(*age):  # otherwise the result was removed by its number
                count -= 1
                row_errors -= len(self._clients[age[1]].results[age[2]].errors)
        excess = len(self._clients) - limits.CLIENTS_MAX
        if excess < 0:
            return True
        last = next(itertools.islice(self._clients.values(), excess, None))
        return last.last_timestamp <= timestamp - self._clients_ttl

    def find(self, client_id: str, seq_no: int) -> WriteResult | None:
        client = self._clients.get(client_id)
        return None if client is None else client.results.get(seq_no)

    def is_stale(self, client_id: str, seq_no: int) -> bool:
        """Whether the result of a write with this number would have been removed."""
        client = self._clients.get(client_id)
        return client is not None and seq_no < client.stale_before

    def add(self, client_id: str, seq_no: int, first_incomplete: int, result: WriteResult) -> None:
        """Store the result of a write that is neither known nor stale."""
        client = self._clients.pop(client_id, None) or _Client()
        self._clients[client_id] = client
        client.last_timestamp = result.timestamp
        client.results[seq_no] = result
        self._count((result,), +1)
        self._by_age.append((result.timestamp, client_id, seq_no))
        self._forget_below(client, min(first_incomplete, seq_no))

    def _forget_below(self, client: _Client, seq_no: int) -> None:
        if seq_no <= client.stale_before:
            return
        client.stale_before = seq_no
        answered = [number for number in client.results if number < seq_no]
        self._count([client.results.pop(number) for number in answered], -1)

    def _count(self, results: Collection[WriteResult], sign: int) -> None:
        self.count += sign * len(results)
        self._row_errors += sign * sum(len(result.errors) for result in results)

    def expire(self, timestamp: int) -> None:
        while self._by_age and self._by_age[0][0] <= timestamp - self._results_ttl:
            age = self._by_age.popleft()
            if self._is_kept(*age):
                _, client_id, seq_no = age
                self._forget_below(self._clients[client_id], seq_no + 1)
        # most results were removed by their number
        if len(self._by_age) > 2 * self.count + _AGES_SPARE:
            self._by_age = deque(age for age in self._by_age if self._is_kept(*age))
        while len(self._clients) > self._clients_kept:
            client_id = next(iter(self._clients))
            client = self._clients[client_id]
            if client.last_timestamp > timestamp - self._clients_ttl:
                return
            self._count(client.results.values(), -1)
            del self._clients[client_id]

    def _is_kept(self, timestamp: int, client_id: str, seq_no: int) -> bool:
        """Whether this result still exists and its client was not forgotten meanwhile."""
        result = self.find(client_id, seq_no)
        return result is not None and result.timestamp == timestamp

    def store(self) -> tuple[StoredClient, ...]:
        return tuple(
            StoredClient(
                client_id,
                client.stale_before,
                client.last_timestamp,
                tuple(sorted(client.results.items(), key=lambda item: item[0])),
            )
            for client_id, client in self._clients.items()
        )

    def load(self, stored: Iterable[StoredClient]) -> None:
        self._clients.clear()
        self.count = self._row_errors = 0
        ages = []
        for client_state in stored:
            client = self._clients[client_state.client_id] = _Client()
            client.stale_before = client_state.stale_before
            client.last_timestamp = client_state.last_timestamp
            client.results = dict(client_state.results)
            self._count(client.results.values(), +1)
            ages += [
                (r.timestamp, client_state.client_id, seq_no) for seq_no, r in client_state.results
            ]
        self._by_age = deque(sorted(ages))
