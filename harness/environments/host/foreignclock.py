"""The clock of a foreign program: libfaketime shifts the clock, and the harness measures the shift.

libfaketime does not reach every program. Go's runtime asks the kernel directly, bypassing the C
library. Statically linked and privileged programs do not preload libraries. Some programs never
read the wall clock. A clock fault would have no effect on them. So each node that a clock fault may
affect is checked before the run:

1. Every process of the node must have loaded libfaketime, and none may be a Go program (recognized
by Go's build information in the executable). This check finds most programs that libfaketime cannot
reach, and gives the reason. A trial run of the executable under a wrong clock would prove nothing,
since its output is unknown and a node may consist of several programs.

2. If the node declares a `clock_probe`, a command that prints the node's time, the harness moves
the clock and the command measures the shift.

3. Otherwise the node must read the setting file, which libfaketime does whenever the program asks
for the time. The kernel records the first read of a file after a write (`relatime`). A read proves
that the program asked for the time, not that it used the answer. Many programs ask for the time
only while they serve a request, so the harness probes the node's readiness meanwhile.

During the run the harness measures each change in the same way. Only a measured effect counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from harness.cluster import NodeSpec, NodeState, check_clock
from harness.environments.faulty import ClockError
from harness.environments.host.faketime import setting, shift_ns
from harness.errors import UsageError
from harness.ops import NS_PER_MS, NS_PER_S

_TRIAL_NS: Final = 2_000_000_000
_TOLERANCE_NS: Final = 500_000_000
"""How much the shift measured in a trial may differ from the real one; a busy host causes
delays."""
_TRIALS: Final = 3
_BEGINS: Final = 4
_BEGINS_S: Final = 0.1
_ASKS_WITHIN_S: Final = 10.0
_FELT_WITHIN_S: Final = 0.25
"""How long a node may take to read a change. Strobe faults change clocks every 0.25 s."""
_LOOK_S: Final = 0.02
_PROBE_S: Final = 2.0
"""The longest wait for a clock probe during the run. A probe may hang together with its node."""

PROCESSES: Final = (
    "sh",
    "-c",
    """
look() {
  grep -q libfaketime "/proc/$1/maps" 2>/dev/null && loaded=yes || loaded=no
  grep -q -a 'Go buildinf:' "/proc/$1/exe" 2>/dev/null && go=yes || go=no
  echo "process $1 $loaded $go $(readlink "/proc/$1/exe")"
  for child in $(cat "/proc/$1"/task/*/children 2>/dev/null); do look "$child"; done
}
look "$1"
""",
    "look",
)
"""A command that describes a process and its descendants, for `why_deaf`."""


class Reach(Protocol):
    """The driver's access to a node's libfaketime. Any method may raise `InfrastructureError`."""

    async def write(self, line: str) -> None:
        """Replace the node's setting file atomically."""
        ...

    async def was_read(self) -> bool:
        """Whether the node has read its setting file since the last `write`."""
        ...

    async def processes(self) -> str:
        """Return the output of `PROCESSES` for the node's processes."""
        ...

    async def ask(self, command: Sequence[str]) -> tuple[int | None, str]:
        """Run a command next to the node, without libfaketime; returns exit code and output."""
        ...


class _Seen(NamedTuple):
    """A measured shift of the node's clock, and the maximum error of the measurement."""

    shift_ns: int
    error_ns: int


def why_deaf(printed: str) -> str | None:
    """Return why libfaketime has no effect, according to the output of `PROCESSES`, or `None`."""
    rows = [line.split(maxsplit=4) for line in printed.splitlines() if line.startswith("process ")]
    # A process without an executable is just exiting.
    alive = [row for row in rows if len(row) == 5]
    if not alive:
        return f"its processes cannot be listed ({printed.strip()[:200] or 'no answer'})"
    for _, _, loaded, go, executable in alive:
        if go == "yes":
            return (
                f"{executable} is a Go program, whose runtime asks the kernel for the time and "
                "not the C library, whose functions libfaketime replaces"
            )
        if loaded == "no":
            return (
                f"{executable} did not load libfaketime, since it is linked statically, has "
                "privileges that its user lacks, or uses a C library other than glibc"
            )
    return None


class ForeignClock:
    """The clock of one foreign program, over all runs of the node."""

    def __init__(self, spec: NodeSpec, reach: Reach) -> None:
        self._spec = spec
        self._reach = reach
        self._error = ClockError()
        self._turn = asyncio.Lock()
        self._unfelt_ns = 0  # the size of the last change, if the node did not read it in time
        self._last: _Seen | None = None  # the result of the clock probe after the last change

    async def prove(self, wait_ready: Callable[[str], Awaitable[object]]) -> None:
        """Raise `UsageError` if libfaketime does not affect the running node.

        `wait_ready` is `harness.cluster.Cluster.wait_ready`.
        """
        reason = why_deaf(await self._reach.processes())
        for _ in range(_BEGINS):
            if reason is None:
                break
            await asyncio.sleep(_BEGINS_S)  # a new process may still be loading libraries
            reason = why_deaf(await self._reach.processes())
        if reason is None:
            by_probe = bool(self._spec.clock_probe)
            reason = await (self._why_unmoved() if by_probe else self._why_unasked(wait_ready))
        if reason is not None:
            raise UsageError(
                f"a clock fault cannot reach {self._spec.name}: {reason}; omit the fault, or "
                "aim it at other nodes (`clock node:NAME ...`)"
            )

    async def _why_unmoved(self) -> str | None:
        problem = "it printed nothing"
        for _ in range(_TRIALS):
            await self._reach.write(setting(ClockError(offset_ns=_TRIAL_NS)))
            try:
                seen = await self._look()
            finally:
                await self._reach.write(setting(self._error))
            if isinstance(seen, str):
                problem = seen
                continue
            if abs(seen.shift_ns - _TRIAL_NS) <= _TOLERANCE_NS + seen.error_ns:
                return None
            problem = f"it was measured as {seen.shift_ns / NS_PER_S:+.3f} s off"
        trial_s = _TRIAL_NS / NS_PER_S
        return (
            f"its clock was moved by {trial_s:+.1f} s, but according to its `clock_probe` {problem}"
        )

    async def _why_unasked(self, wait_ready: Callable[[str], Awaitable[object]]) -> str | None:
        await self._reach.write(setting(self._error))
        await wait_ready(self._spec.name)
        if await self._read_within(_ASKS_WITHIN_S):
            return None
        return (
            f"it did not ask for the time within {_ASKS_WITHIN_S:.0f} s, so the effect is unknown; "
            "if it asks only while it serves requests, declare a `clock_probe`"
        )

    async def skew(self, state: NodeState, *, offset_ns: int, drift_ppm: int) -> int:
        """Set the clock error; returns by how many ms the node noticed its clock jump.

        If the node noticed the previous change late, for example because of a pause, the result
        includes that change. See `harness.cluster.Controls.skew`.
        """
        check_clock(offset_ns=offset_ns, drift_ppm=drift_ppm)
        async with self._turn:
            return await self._skew(state, offset_ns, drift_ppm)

    async def _skew(self, state: NodeState, offset_ns: int, drift_ppm: int) -> int:
        running = state is NodeState.RUNNING
        felt_ns = self._unfelt_ns if self._unfelt_ns and await self._reach.was_read() else 0
        before = await self._before() if running and self._spec.clock_probe else None
        now_ns = time.time_ns()
        changed_ns = abs(offset_ns - shift_ns(self._error, now_ns))
        self._error = ClockError(offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=now_ns)
        await self._reach.write(setting(self._error))
        self._unfelt_ns = 0
        after = None if before is None else await self._look_soon()
        self._last = after if isinstance(after, _Seen) else None
        if before is not None and self._last is not None:
            felt_ns += abs(self._last.shift_ns - before.shift_ns)
        elif running and await self._read_within(_FELT_WITHIN_S):
            felt_ns += changed_ns
        else:
            self._unfelt_ns = changed_ns
        return felt_ns // NS_PER_MS

    async def _before(self) -> _Seen | None:
        """Return the clock's shift before a change. Measure it only if it is unknown or drifts.

        Strobe faults change the clock too often for two measurements per change.
        """
        if self._last is not None and not self._error.drift_ppm:
            return self._last
        seen = await self._look_soon()
        return seen if isinstance(seen, _Seen) else None

    async def mend(self, state: NodeState) -> None:
        if self._error.offset_ns or self._error.drift_ppm:
            await self.skew(state, offset_ns=0, drift_ppm=0)

    async def _read_within(self, limit_s: float) -> bool:
        deadline_s = time.monotonic() + limit_s
        while not await self._reach.was_read():
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _look_soon(self) -> _Seen | str:
        try:
            async with asyncio.timeout(_PROBE_S):
                return await self._look()
        except TimeoutError:
            return "the command took too long"

    async def _look(self) -> _Seen | str:
        """Measure the clock's shift by the node's `clock_probe`. Returns a reason if that fails."""
        asked_ns = time.time_ns()
        code, output = await self._reach.ask(self._spec.clock_probe)
        answered_ns = time.time_ns()
        if code != 0:
            how = "took too long" if code is None else f"exited with {code}"
            return f"the command {how}: {output.strip()[-300:]!r}"
        try:
            printed_ns = round(float(output) * NS_PER_S)
        except (ValueError, OverflowError):
            return f"the output is not a time: {output.strip()[-300:]!r}"
        between_ns = (asked_ns + answered_ns) // 2
        return _Seen(printed_ns - between_ns, (answered_ns - asked_ns) // 2)
