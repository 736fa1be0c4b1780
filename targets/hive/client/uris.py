"""Which metastore is tried first: Hive's `HiveMetaStoreClient`, lines of `resolveUris` and `open`.

Every opening begins at the first of the list. Sequential keeps the list as it is, so that any
reconnect fails back to the first one that serves. Random shuffles it once, and at each reconnect
puts another one first, drawn: of two, always the other.

The list is read when a client is made. One with a resolver (`metastore.uri.resolver`, HIVE-18347)
reads it at every reconnect as well (`reconnect` calls `resolveUris`), and so follows metastores
that come and go; all others keep it as long as they live. No client reads it sooner: who is
connected stays so. Hive shuffles a random list at each of these readings, here one that changed.

So a sequential client returns at once to a first metastore that accepts connections and answers
nothing, and to no other as long as that lasts. In `strict` one that lost a call is tried last for a
while, of several the one that lost its call longest ago first; switch FAILBACK-FLAP is Hive's way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from harness.env import Address
from targets.hive.client.settings import Selection

AVOIDED_NS: Final = 10_000_000_000
"""How long a metastore that lost a call is tried after the others."""


class Uris:
    """The list of one client."""

    def __init__(
        self,
        given: Sequence[Address],
        selection: Selection,
        rng: random.Random,
        *,
        remembers: bool,
    ) -> None:
        """Shuffled where the selection says so; `remembers` which one lost a call."""
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
        """The list is this now, perhaps as before."""
        if tuple(given) != self.given:
            self._read(given)

    def in_order(self, now_ns: int) -> tuple[Address, ...]:
        """In the order in which an opening tries them."""

        def lost_lately_ns(uri: Address) -> int:
            lost_ns = self._lost_ns.get(uri, -AVOIDED_NS)
            return lost_ns if now_ns - lost_ns < AVOIDED_NS else -1

        return tuple(sorted(self._uris, key=lost_lately_ns))

    def lost(self, uri: Address, now_ns: int) -> None:
        """A call to it was lost."""
        if self._remembers:
            self._lost_ns[uri] = now_ns

    def promote(self) -> None:
        """A reconnect is about to begin."""
        if self._is_random and len(self._uris) > 1:
            other = 1 + self._rng.randrange(len(self._uris) - 1)
            uris = self._uris
            uris[0], uris[other] = uris[other], uris[0]
