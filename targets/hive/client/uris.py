"""The order in which a client tries metastores, as in Hive's `HiveMetaStoreClient`.

Every attempt to connect begins at the head of the client's list. `sequential` never changes the
order, so a reconnect always returns to the first metastore that answers. `random` shuffles the list
once, and each reconnect moves another random metastore to the head.

A client reads the configured list when it is created. A client with a resolver
(`metastore.uri.resolver`, HIVE-18347) reads it again at every reconnect, and so follows added and
removed metastores.

In Hive, a sequential client keeps returning to the first metastore, even if that metastore accepts
connections but never answers (defect FAILBACK-FLAP). In the profile `strict`, a metastore that lost
a call is for a while tried after all others. If several have lost calls, the one whose loss is
oldest is tried first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from harness.env import Address
from targets.hive.client.settings import Selection

AVOIDED_NS: Final = 10_000_000_000
"""For this long after a metastore lost a call, a client tries all other metastores first."""


class Uris:
    """The list of URIs of one client."""

    def __init__(
        self,
        given: Sequence[Address],
        selection: Selection,
        rng: random.Random,
        *,
        remembers: bool,
    ) -> None:
        """Start with the list `given`. With `remembers`, metastores that lost a call go last."""
        self._is_random = selection is Selection.RANDOM
        self._rng = rng
        self._remembers = remembers
        self._lost_ns: dict[Address, int] = {}
        self._read(given)

    def _read(self, given: Sequence[Address]) -> None:
        self.given = tuple(given)
        self._uris = list(given)
        if self._is_random:
            self._rng.shuffle(self._uris)

    def reread(self, given: Sequence[Address]) -> None:
        """Replace the client's list if the configured list `given` has changed."""
        if tuple(given) != self.given:
            self._read(given)

    def in_order(self, now_ns: int) -> tuple[Address, ...]:
        """Return the metastores in the order in which the client tries to connect."""

        def lost_lately_ns(uri: Address) -> int:
            lost_ns = self._lost_ns.get(uri, -AVOIDED_NS)
            return lost_ns if now_ns - lost_ns < AVOIDED_NS else -1

        return tuple(sorted(self._uris, key=lost_lately_ns))

    def lost(self, uri: Address, now_ns: int) -> None:
        if self._remembers:
            self._lost_ns[uri] = now_ns

    def promote(self) -> None:
        """Swap the head of a `random` list with another metastore, before a reconnect."""
        if self._is_random and len(self._uris) > 1:
            other = 1 + self._rng.randrange(len(self._uris) - 1)
            uris = self._uris
            uris[0], uris[other] = uris[other], uris[0]
