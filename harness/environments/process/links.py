"""Link faults by toxics on the link proxy, each a lease, each measured.

What flows from a to b is the upstream direction of the connections that a opened to b and the
downstream direction of those that b opened to a; a fault on `Link(a, b)` puts a toxic on both.

| fault           | on our link proxy       | on a real Toxiproxy                              |
|-----------------|-------------------------|--------------------------------------------------|
| cut             | `blackhole`             | `timeout` of 0: the end of a connection leaks     |
| delay           | `latency`               | the same                                         |
| throttle        | `bandwidth`             | the same                                         |
| stall           | `latency` of a day      | the same: removal lets everything held go        |
| slices          | `slicer`                | the same                                         |
| reset after     | `reset_peer`            | the same                                         |
| reset           | a reset that counts     | off and on again, connections counted in /proc   |
| bytes swallowed | live counter            | received less sent, known once connections ended |

A fault ends by `heal` or, when the harness is dead, by the warden a little after its lease.
Removing a toxic that is gone is no error, so they do not get into each other's way.

The server may be one that others use, too. So the proxies and toxics are looked at along the run,
and once more when a fault is healed: one that is not as it was made is a fact of the history, and a
fault with such a toxic was `undone`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from harness.cluster import Bite, Link, LinkQuality, StreamQuality
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
from harness.errors import UsageError

_STALL_MS: Final = 86_400_000
_SETTLE_S: Final = 0.5
_SETTLE_POLL_S: Final = 0.05
_TCP_ESTABLISHED: Final = "01"
_LOOK_S: Final = 1.0
_LOOK_SHARE_MAX: Final = 0.02
"""Of the time, at most: thousands of proxies take a while to list."""


class _Place(NamedTuple):
    """One direction of the connections through one proxy."""

    proxy: str
    stream: str


class _Toxic(NamedTuple):
    link: Link
    place: _Place
    name: str
    kind: str
    attributes: dict[str, int]

    def is_among(self, proxies: Mapping[str, ProxyInfo]) -> bool:
        """Whether it is there, as it was made."""
        proxy = proxies.get(self.place.proxy)
        return proxy is not None and any(self._is(toxic) for toxic in proxy.toxics)

    def _is(self, toxic: ToxicInfo) -> bool:
        made = (self.name, self.kind, self.place.stream, 1.0)
        same = made == (toxic.name, toxic.type, toxic.stream, toxic.toxicity)
        return same and self.attributes.items() <= toxic.attributes.items()


@dataclass(slots=True)
class _Fault:
    id: str
    swallows: bool
    toxics: list[_Toxic]
    before: dict[_Place, int] | None
    warden_at_s: float  # from then on the warden may have ended it
    bitten: int | None = 0
    undone: bool = False


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
        """`tell` is called for a fault that another program ended."""
        self._tell = tell
        self._next_look_s = 0.0
        self._seen: Interference | None = None
        self._topology = topology
        self._client = client
        self._warden = warden
        self._ours = ours
        self._faults: dict[str, _Fault] = {}
        self._turn = asyncio.Lock()

    # --- making ------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], lease_s: float) -> str:
        """Swallow everything on these links."""
        kind: tuple[str, dict[str, int]] = ("timeout", {"timeout": 0})
        return await self._add(
            links, [("blackhole", {}) if self._ours else kind], lease_s, swallows=True
        )

    async def shape(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality, lease_s: float
    ) -> str:
        """Delay, throttle, stall, slice or reset these links."""
        quality.check()
        if isinstance(quality, StreamQuality):
            return await self._add(links, toxics_of(quality), lease_s, swallows=False)
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
        if not kinds:
            raise UsageError(
                f"{quality} leaves the links as they are; set delay_ms, rate_kb_s, ..."
            )
        return await self._add(links, kinds, lease_s, swallows=False)

    def _places(self, link: Link) -> list[_Place]:
        """Where bytes flow from the link's source to its destination."""
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

    async def _add(
        self,
        links: Sequence[Link],
        kinds: Sequence[tuple[str, dict[str, int]]],
        lease_s: float,
        *,
        swallows: bool,
    ) -> str:
        async with self._turn:
            ends_s = asyncio.get_running_loop().time() + lease_s + AFTER_LEASE_S
            fault = _Fault(f"link-{len(self._faults) + 1}", swallows, [], None, ends_s)
            places = [(link, place) for link in sorted(set(links)) for place in self._places(link)]
            fault.before = await self._measure({place for _, place in places}, swallows=swallows)
            self._faults[fault.id] = fault
            try:
                for link, place in places:
                    for number, (kind, attributes) in enumerate(kinds):
                        name = f"{fault.id}-{place.stream}-{number}"
                        toxic = _Toxic(link, place, name, kind, attributes)
                        self._guard(toxic, lease_s)
                        fault.toxics.append(toxic)
                        await self._client.add_toxic(
                            place.proxy, toxic.name, kind, place.stream, attributes
                        )
            except BaseException:
                fault.undone = True  # it was never complete, which needs no report
                await self._remove(fault, fault.toxics)
                raise
            return fault.id

    def _guard_key(self, toxic: _Toxic) -> str:
        return f"toxic/{toxic.place.proxy}/{toxic.name}"

    def _guard(self, toxic: _Toxic, lease_s: float) -> None:
        url = self._client.url("proxies", toxic.place.proxy, "toxics", toxic.name)
        undo = HttpRequest("DELETE", url, token=self._client.token)
        self._warden.guard(self._guard_key(toxic), undo, deadline_s=lease_s + AFTER_LEASE_S)

    # --- healing -----------------------------------------------------------------------------

    async def heal(self, fault_id: str) -> Bite:
        """Undo one fault; raises `UsageError` for an unknown one."""
        if fault_id not in self._faults:
            raise UsageError(f"there is no link fault {fault_id!r}; known: {sorted(self._faults)}")
        async with self._turn:
            fault = self._faults[fault_id]
            await self._remove(fault, fault.toxics)
            return Bite(fault.bitten, "bytes", undone=fault.undone)

    async def heal_within(self, names: Collection[str] | None) -> None:
        """Undo what lies on links with both ends among `names`; `None` is everywhere."""
        async with self._turn:
            for fault in list(self._faults.values()):
                inside = [
                    toxic
                    for toxic in fault.toxics
                    if names is None or {toxic.link.source, toxic.link.destination}.issubset(names)
                ]
                await self._remove(fault, inside)

    async def _remove(self, fault: _Fault, toxics: Iterable[_Toxic]) -> None:
        toxics = list(toxics)
        if not toxics:
            return
        places = {toxic.place for toxic in toxics}
        self._find_undone(fault, toxics, await self._client.proxies())
        if self._ours:
            after = await self._measure(places, swallows=fault.swallows)
        for toxic in toxics:
            await self._client.remove_toxic(toxic.place.proxy, toxic.name)
            fault.toxics.remove(toxic)
            self._warden.release(self._guard_key(toxic))
        if not self._ours:
            after = await self._measure_settled(places, fault)
        if fault.bitten is None or fault.before is None or after is None:
            fault.bitten = None
            return
        before = fault.before
        fault.bitten += sum(max(0, after[place] - before[place]) for place in places)

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
        """What is not as we made it: proxies, and toxics that are not ours. Finds undone faults."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        if begin_s < self._next_look_s:
            return self._seen
        try:
            async with asyncio.timeout(_LOOK_S), self._turn:
                proxies = await self._client.proxies()
                for fault in self._faults.values():
                    self._find_undone(fault, fault.toxics, proxies)
                self._seen = self._strange(proxies)
        except TimeoutError:
            return self._seen  # a busy server; one of ours that is stopped is seen elsewhere
        except ToxiproxyError as error:
            self._seen = Interference(f"the link proxy does not answer: {error}")
        end_s = loop.time()
        self._next_look_s = end_s + max(_LOOK_S, (end_s - begin_s) / _LOOK_SHARE_MAX)
        return self._seen

    def _strange(self, proxies: Mapping[str, ProxyInfo]) -> Interference | None:
        ours: dict[str, set[str]] = {}
        for fault in self._faults.values():
            for toxic in fault.toxics:
                ours.setdefault(toxic.place.proxy, set()).add(toxic.name)
        for name, made in self._topology.proxies.items():
            now = proxies.get(name)
            what = None
            if now is None:
                what = "was removed"
            elif not now.enabled:
                what = "was switched off"
            elif (now.listen, now.upstream) != (made.listen, made.upstream):
                what = f"was led from {now.listen} to {now.upstream}"
            elif strange := {toxic.name for toxic in now.toxics} - ours.get(name, set()):
                what = f"got the toxic {min(strange)}"
            if what is not None:
                return Interference(f"the proxy {name} {what}, and not by the harness")
        return None

    # --- measuring ---------------------------------------------------------------------------

    async def _measure(
        self, places: Collection[_Place], *, swallows: bool
    ) -> dict[_Place, int] | None:
        """Bytes swallowed (or, of a shaping, received) so far; `None` where nobody counts."""
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
        """Real Toxiproxy counts when connections end, which they do soon after a cut healed."""
        after = await self._measure(places, swallows=fault.swallows)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _SETTLE_S
        while after is not None and after == fault.before and loop.time() < deadline_s:
            await asyncio.sleep(_SETTLE_POLL_S)
            after = await self._measure(places, swallows=fault.swallows)
        return after

    # --- resetting ---------------------------------------------------------------------------

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections that use one of these links; returns how many."""
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
    """How many connections to a local port are open (proc(5), `/proc/net/tcp`)."""
    wanted = f":{port:04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows: Iterable[list[str]] = (line.split() for line in lines)
    return sum(row[1].endswith(wanted) and row[3] == _TCP_ESTABLISHED for row in rows)
