"""The results of recent writes: a write is applied once, and a resend gets the first answer.

The code follows Kudu's `rpc/result_tracker.h`, with one difference: results are stored and removed
when the log is applied, by the log's timestamps. All replicas therefore have the same results, and
so does a new leader. If the log has two copies of a request, only the first one takes effect.

A result is kept for `remember_responses_ttl_ms`, and a client for `remember_clients_ttl_ms` after
its last write. The latest clients are always kept: otherwise a leader whose clock is hours ahead
would remove all clients at once, and late copies of requests would take effect again. A client
reports the request number below which it has all answers, and the results below that number are
removed. A request whose result was removed is stale: the server no longer knows whether it was
applied.

If there are too many results, the leader refuses new writes (`is_full`, THROTTLED). But only new
log entries advance the log's time and expire results. So the leader accepts a write whose own
timestamp would expire enough results (`makes_room`).
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
    """A write's timestamp, its log index and term, and the errors of rows that were not written."""

    timestamp: int
    index: int
    term: int
    errors: tuple[RowError, ...] = ()


class StoredClient(msgspec.Struct, frozen=True, array_like=True):
    """A client's results in a snapshot, as pairs of a request number and a result."""

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
    """The remembered write results of one tablet. Timestamps must rise from call to call."""

    def __init__(
        self, *, results_ttl_ms: int, clients_ttl_ms: int, clients_kept: int = limits.CLIENTS_KEPT
    ) -> None:
        """Set the lifetimes of results and clients. The latest `clients_kept` clients stay."""
        self._clients_kept = clients_kept
        self._results_ttl = from_micros(results_ttl_ms * _US_PER_MS)
        self._clients_ttl = from_micros(clients_ttl_ms * _US_PER_MS)
        self._clients: dict[str, _Client] = {}  # in the order of their last write
        self._by_age: deque[tuple[int, str, int]] = deque()  # (timestamp, client, request number)
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
        """Return whether a write at `timestamp` would expire enough results."""
        count, row_errors = self.count, self._row_errors
        for age in self._by_age:
            if count < limits.RESULTS_MAX and row_errors < limits.ROW_ERRORS_MAX:
                break
            if age[0] > timestamp - self._results_ttl:
                return False
            if self._is_kept(*age):  # otherwise the result has been removed already
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
        """Whether the server no longer knows if the client's write `seq_no` was applied."""
        client = self._clients.get(client_id)
        return client is not None and seq_no < client.stale_before

    def add(self, client_id: str, seq_no: int, first_incomplete: int, result: WriteResult) -> None:
        """Store the result of a new write, and remove results below `first_incomplete`."""
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
        # Most results are removed before they expire: drop the ages of removed results.
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
