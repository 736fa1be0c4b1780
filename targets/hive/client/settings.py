"""A client's choice of metastores, retries and timeouts, with the names of Hive's settings.

| here            | in Hive                                 | there by default |
|-----------------|-----------------------------------------|------------------|
| selection       | metastore.thrift.uri.selection          | RANDOM           |
| connect_rounds  | metastore.connect.retries               | 3                |
| connect_delay_s | metastore.client.connect.retry.delay    | 1 s              |
| retries         | metastore.failure.retries               | 1                |
| retry_delay_s   | as connect_delay_s                      | 1 s              |
| connect_s       | metastore.client.connection.timeout     | 600 s            |
| socket_s        | metastore.client.socket.timeout         | 600 s            |
| lifetime_s      | metastore.client.socket.lifetime        | 0 s: no limit    |
| rereads         | metastore.uri.resolver (since 3.0)      | none: the list   |
|                 |                                         | is kept          |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Selection(enum.StrEnum):
    """The order in which a client tries its URIs."""

    SEQUENTIAL = "sequential"
    RANDOM = "random"


class UriList(enum.StrEnum):
    """Whether a client reads the configured list again at each reconnect, or keeps its first."""

    REREAD = "reread"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client; the module's table has their names in Hive."""

    selection: Selection
    connect_rounds: int = 3
    connect_delay_s: float = 1.0
    retries: int = 1
    retry_delay_s: float = 1.0
    connect_s: float = 1.0
    socket_s: float = 2.0
    lifetime_s: float = 0.0
    rereads: bool = False

    def failover_s(self, uris: int) -> float:
        """Return the longest time between a failed call and the next try at `uris` metastores."""
        rounds = self.connect_rounds * uris * self.connect_s
        return rounds + (self.connect_rounds - 1) * self.connect_delay_s + self.retry_delay_s + 1.0
