"""Carries out link faults by toxics on the link proxy, and measures their effect.

A toxic is Toxiproxy's term for a fault of one proxy in one direction. Bytes from A to B flow
upstream in connections that A opened, and downstream in connections that B opened. So a fault on
`Link(A, B)` needs a toxic for each of these two cases.

| fault           | on our link proxy       | on a real Toxiproxy                              |
|-----------------|-------------------------|--------------------------------------------------|
| cut             | `blackhole`             | `timeout` of 0: connections can still be closed  |
| delay           | `latency`               | the same                                         |
| throttle        | `bandwidth`             | the same                                         |
| stall           | `latency` of a day      | the same; removal releases all held bytes        |
| slices          | `slicer`                | the same                                         |
| reset after     | `reset_peer`            | the same                                         |
| reset           | the server resets       | proxy switched off and on; /proc has the count   |
| bytes swallowed | live counter            | received minus sent, once connections have ended |

The ledger of faults decides the states of links. If the harness dies, the warden removes toxics
soon after their lease. Driver and warden may remove the same toxic, so a missing toxic is not an
error.

Other programs may also use the link proxy. So the harness checks proxies and toxics during the run,
and again when it removes a fault from a link. The history records changes by other programs. If
such a program has changed a fault's toxic, the fault counts as `undone`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from harness.cluster import Bite, Link, LinkQuality, LinkState, StreamQuality
from harness.environments.host.cluster import label_of
from harness.environments.host.watch import Interference
from harness.environments.process.addresses import Passage, Topology
from harness.environments.toxiproxy.client import (
    ProxyInfo,
    ToxicInfo,
    ToxiproxyClient,
    ToxiproxyError,
)
from harness.environments.toxiproxy.metrics import RECEIVED, SENT, SWALLOWED
from harness.environments.toxiproxy.toxics import toxics_of
from harness.environments.warden import AFTER_LEASE_S, HttpRequest, Warden

_STALL_MS: Final = 86_400_000
_SWALLOWING: Final = {"blackhole", "timeout"}
_SETTLE_S: Final = 0.5
_SETTLE_POLL_S: Final = 0.05
_TCP_ESTABLISHED: Final = "01"
_LOOK_S: Final = 1.0
_LOOK_SHARE_MAX: Final = 0.02
"""The maximum share of time for checking the proxies. Listing thousands of them is slow."""


class _Place(NamedTuple):
    """A proxy, and one direction of the connections through it."""

    proxy: str
    stream: str


class _Toxic(NamedTuple):
    link: Link
    place: _Place
    name: str
    kind: str
    attributes: dict[str, int]

    def is_among(self, proxies: Mapping[str, ProxyInfo]) -> bool:
        """Whether the toxic is among the server's `proxies`, and unchanged."""
        proxy = proxies.get(self.place.proxy)
        return proxy is not None and any(self._is(toxic) for toxic in proxy.toxics)

    def _is(self, toxic: ToxicInfo) -> bool:
        made = (self.name, self.kind, self.place.stream, 1.0)
        same = made == (toxic.name, toxic.type, toxic.stream, toxic.toxicity)
        return same and self.attributes.items() <= toxic.attributes.items()


_Kinds = Sequence[tuple[str, dict[str, int]]]


@dataclass(slots=True)
class _Fault:
    """One fault and the links that it currently affects."""

    swallows: bool
    warden_at_s: float  # from this time on, the warden may have ended the fault
    before: dict[_Place, int] | None
    toxics: dict[Link, list[_Toxic]] = field(default_factory=dict)
    undone: bool = False

    def all_toxics(self) -> list[_Toxic]:
        return [toxic for toxics in self.toxics.values() for toxic in toxics]


class LinkFaults:
    """All link faults of a run."""

    def __init__(
        self,
        topology: Topology,
        client: ToxiproxyClient,
        warden: Warden,
        *,
        ours: bool,
        tell: Callable[[str], None],
    ) -> None:
        """`tell` gets a message if another program ends or changes a fault."""
        self._tell = tell
        self._next_look_s = 0.0
        self._seen: Interference | None = None
        self._topology = topology
        self._client = client
        self._warden = warden
        self._ours = ours
        self._faults: dict[str, _Fault] = {}
        self._turn = asyncio.Lock()

    # --- setting -----------------------------------------------------------------------------

    async def set_links(self, wanted: Mapping[Link, LinkState], lease_s: float) -> dict[str, Bite]:
        """Put links into these states (see `harness.cluster.Controls.set_links`)."""
        kinds = {
            fault: self._kinds(quality)
            for state in wanted.values()
            for fault, quality in state.items()
        }
        async with self._turn:
            bites = {}
            for fault_id, fault in list(self._faults.items()):
                gone = [each for each in fault.toxics if each in wanted]
                gone = [link for link in gone if fault_id not in wanted[link]]
                if gone:
                    bites[fault_id] = await self._take_off(fault, gone)
                if not fault.toxics:
                    del self._faults[fault_id]
            for fault_id, of_fault in kinds.items():
                links = [link for link, state in wanted.items() if fault_id in state]
                if fault_id in self._faults:
                    links = [link for link in links if link not in self._faults[fault_id].toxics]
                if links:
                    await self._lay(fault_id, links, of_fault, lease_s)
            return bites

    def _kinds(self, quality: LinkQuality | StreamQuality | None) -> _Kinds:
        """Return the toxics that give a link this `quality`; `None` means a cut."""
        if quality is None:
            return [("blackhole", {}) if self._ours else ("timeout", {"timeout": 0})]
        if isinstance(quality, StreamQuality):
            return toxics_of(quality)
        kinds: list[tuple[str, dict[str, int]]] = []
        if quality.delay_ms > 0 or quality.jitter_ms > 0:
            latency = {
                "latency": math.ceil(quality.delay_ms),
                "jitter": math.ceil(quality.jitter_ms),
            }
            kinds.append(("latency", latency))
        if quality.rate_kb_s > 0:
            kinds.append(("bandwidth", {"rate": quality.rate_kb_s}))
        if quality.stall:
            kinds.append(("latency", {"latency": _STALL_MS, "jitter": 0}))
        return kinds

    def _places(self, link: Link) -> list[_Place]:
        """Return the proxies and directions through which the link's bytes flow."""
        ends = (link.source, link.destination)
        return [
            _Place(
                passage.proxy,
                "upstream" if (passage.source, passage.destination) == ends else "downstream",
            )
            for passage in self._between(link)
        ]

    def _between(self, link: Link) -> list[Passage]:
        ends = {link.source, link.destination}
        return [p for p in self._topology.passages if {p.source, p.destination} == ends]

    async def _lay(
        self, fault_id: str, links: Sequence[Link], kinds: _Kinds, lease_s: float
    ) -> None:
        """Put a fault on links. It is recorded first, so it can be removed even if this fails."""
        ends_s = asyncio.get_running_loop().time() + lease_s + AFTER_LEASE_S
        swallows = kinds[0][0] in _SWALLOWING
        places = {link: self._places(link) for link in links}
        before = await self._measure(
            {p for each in places.values() for p in each}, swallows=swallows
        )
        fault = self._faults.setdefault(fault_id, _Fault(swallows, ends_s, before))
        for link in links:
            toxics = fault.toxics[link] = []
            for place in places[link]:
                for number, (kind, attributes) in enumerate(kinds):
                    name = f"{label_of(fault_id)}-{place.stream}-{number}"
                    toxic = _Toxic(link, place, name, kind, attributes)
                    self._guard(toxic, lease_s)
                    toxics.append(toxic)
                    try:
                        await self._client.add_toxic(
                            place.proxy, toxic.name, kind, place.stream, attributes
                        )
                    except BaseException:
                        # so that no other program is blamed for the missing toxics
                        fault.undone = True
                        raise

    def _guard_key(self, toxic: _Toxic) -> str:
        return f"toxic/{toxic.place.proxy}/{toxic.name}"

    def _guard(self, toxic: _Toxic, lease_s: float) -> None:
        url = self._client.url("proxies", toxic.place.proxy, "toxics", toxic.name)
        undo = HttpRequest("DELETE", url, token=self._client.token)
        self._warden.guard(self._guard_key(toxic), undo, deadline_s=lease_s + AFTER_LEASE_S)

    async def _take_off(self, fault: _Fault, links: Sequence[Link]) -> Bite:
        toxics = [toxic for link in links for toxic in fault.toxics[link]]
        places = {toxic.place for toxic in toxics}
        self._find_undone(fault, toxics, await self._client.proxies())
        if self._ours:
            after = await self._measure(places, swallows=fault.swallows)
        for toxic in toxics:
            await self._client.remove_toxic(toxic.place.proxy, toxic.name)
            self._warden.release(self._guard_key(toxic))
        for link in links:
            del fault.toxics[link]
        if not self._ours:
            after = await self._measure_settled(places, fault)
        if fault.before is None or after is None:
            return Bite(None, "bytes", undone=fault.undone)
        bytes_ = sum(max(0, after[place] - fault.before[place]) for place in places)
        return Bite(bytes_, "bytes", undone=fault.undone)

    # --- others --------------------------------------------------------------------------------

    def _find_undone(
        self, fault: _Fault, toxics: Iterable[_Toxic], proxies: Mapping[str, ProxyInfo]
    ) -> None:
        if fault.undone or asyncio.get_running_loop().time() >= fault.warden_at_s:
            return
        gone = [toxic for toxic in toxics if not toxic.is_among(proxies)]
        if gone:
            fault.undone = True
            first = gone[0]
            self._tell(
                f"a fault on the link from {first.link.source} to {first.link.destination} was "
                f"ended or changed, and not by the harness: the toxic {first.name} of the proxy "
                f"{first.place.proxy} is not as it was made"
            )

    async def interference(self) -> Interference | None:
        """Return the interference by other programs that changed proxies or added toxics, or
        `None`.

        Also marks and reports the faults whose toxics were changed.
        """
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        if begin_s < self._next_look_s:
            return self._seen
        try:
            async with asyncio.timeout(_LOOK_S), self._turn:
                proxies = await self._client.proxies()
                for fault in self._faults.values():
                    self._find_undone(fault, fault.all_toxics(), proxies)
                self._seen = self._strange(proxies)
        except TimeoutError:
            # the server is too busy to answer; `LinkProxy` notices a stopped server
            return self._seen
        except ToxiproxyError as error:
            self._seen = Interference(f"the link proxy does not answer: {error}")
        end_s = loop.time()
        self._next_look_s = end_s + max(_LOOK_S, (end_s - begin_s) / _LOOK_SHARE_MAX)
        return self._seen

    def _strange(self, proxies: Mapping[str, ProxyInfo]) -> Interference | None:
        ours: dict[str, set[str]] = {}
        for fault in self._faults.values():
            for toxic in fault.all_toxics():
                ours.setdefault(toxic.place.proxy, set()).add(toxic.name)
        for name, made in self._topology.proxies.items():
            now = proxies.get(name)
            what = None
            if now is None:
                what = "was removed"
            elif not now.enabled:
                what = "was switched off"
            elif (now.listen, now.upstream) != (made.listen, made.upstream):
                what = f"was changed to lead from {now.listen} to {now.upstream}"
            elif strange := {toxic.name for toxic in now.toxics} - ours.get(name, set()):
                what = f"got the toxic {min(strange)}"
            if what is not None:
                return Interference(f"the proxy {name} {what}, and not by the harness")
        return None

    # --- measuring ---------------------------------------------------------------------------

    async def _measure(
        self, places: Collection[_Place], *, swallows: bool
    ) -> dict[_Place, int] | None:
        """Return the byte counters of `places`, or `None` if the server has no suitable ones.

        Faults that swallow bytes count swallowed bytes. Other faults count received bytes.
        """
        samples = await self._client.metrics()
        if samples is None or not (self._ours or swallows):
            return None
        counts: dict[_Place, int] = {}
        for place in places:
            received = samples.get((RECEIVED, *place), 0.0)
            if not swallows:
                counts[place] = int(received)
            elif self._ours:
                counts[place] = int(samples.get((SWALLOWED, *place), 0.0))
            else:
                counts[place] = int(received - samples.get((SENT, *place), 0.0))
        return counts

    async def _measure_settled(
        self, places: Collection[_Place], fault: _Fault
    ) -> dict[_Place, int] | None:
        """Return the result of `_measure`, after a short wait for the counters to change.

        A real Toxiproxy counts bytes only when a connection ends.
        """
        after = await self._measure(places, swallows=fault.swallows)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _SETTLE_S
        while (
            after is not None
            and after.items() <= (fault.before or {}).items()
            and loop.time() < deadline_s
        ):
            await asyncio.sleep(_SETTLE_POLL_S)
            after = await self._measure(places, swallows=fault.swallows)
        return after

    # --- resetting ---------------------------------------------------------------------------

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links; returns how many were reset."""
        passages = sorted({passage for link in links for passage in self._between(link)})
        async with self._turn:
            count = 0
            for passage in passages:
                if self._ours:
                    count += await self._client.reset_connections(passage.proxy)
                else:
                    count += _established(passage.address[1])
                    await self._client.enable(passage.proxy, enabled=False)
                    await self._client.enable(passage.proxy, enabled=True)
            return count


def _established(port: int) -> int:
    """Return the number of open connections to a local port in `/proc/net/tcp` (proc(5))."""
    wanted = f":{port:04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows: Iterable[list[str]] = (line.split() for line in lines)
    return sum(row[1].endswith(wanted) and row[3] == _TCP_ESTABLISHED for row in rows)
