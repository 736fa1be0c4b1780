"""libfaketime is configured, its effect is measured, and programs that ignore it are found."""

import asyncio
import re
import struct
import time

import pytest

from harness.cluster import NodeSpec, NodeState
from harness.environments.faulty import ClockError
from harness.environments.host import faketime, foreignclock
from harness.environments.host.faketime import Names, preload, setting, shift_ns, without_waits
from harness.environments.host.foreignclock import ForeignClock, why_deaf
from harness.errors import InfrastructureError, UsageError

S = 1_000_000_000
NOW = 1_800_000_000 * S
UP, PAUSED, DOWN = NodeState.RUNNING, NodeState.PAUSED, NodeState.DOWN
HEARS = "process 7 yes no /bin/x\nprocess 8 yes no /bin/x\n"


def told_ns(line, now_ns):
    """Return the shift that libfaketime computes from this line; its rates count from 1970."""
    sign, whole, rest, rate = re.fullmatch(r"([+-])(\d+)\.(\d{9}) x(\d+\.\d{6})", line).groups()
    offset_ns = int(f"{sign}{whole}{rest}")
    return offset_ns + now_ns * (round(float(rate) * 1_000_000) - 1_000_000) // 1_000_000


@pytest.mark.parametrize("offset_ns", [0, 5 * S, -3_250_000_000, -1])
@pytest.mark.parametrize("drift_ppm", [0, 500, 100_000, -900_000, 9_000_000])
def test_the_line_says_what_is_meant(offset_ns, drift_ppm):
    error = ClockError(offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=NOW)
    for later_ns in (0, 7 * S):
        meant = offset_ns + later_ns * drift_ppm // 1_000_000
        assert shift_ns(error, NOW + later_ns) == meant
        assert abs(told_ns(setting(error), NOW + later_ns) - meant) <= 1


def test_modules_that_a_node_imports_are_loaded():
    added = preload("/l.so", "n", "/shm", {"LD_PRELOAD": "theirs.so"})
    assert added["LD_PRELOAD"] == "/l.so:theirs.so"
    assert added["FAKETIME_SHARED"] == "/n.sem /n.page"
    assert Names.of("n").semaphore == "sem.n.sem"


@pytest.mark.faketime
def test_waits_are_taken_out_of_the_library_and_clocks_are_not():
    library = faketime.find_library().read_bytes()
    copy = without_waits(library)
    defined = {
        name
        for name, at in faketime._symbols(copy)
        if struct.unpack_from("<HQ", copy, at + 6) != (0, 0)
    }
    assert {b"clock_gettime", b"gettimeofday", b"time"} <= defined
    assert not defined & faketime._WAITS
    assert len(copy) == len(library)


@pytest.mark.parametrize("junk", [b"", b"#!/bin/sh", b"\x7fELF\x02\x01" + bytes(100)])
def test_invalid_libraries_are_refused(junk):
    with pytest.raises(InfrastructureError, match="libfaketime"):
        without_waits(junk)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (HEARS, None),
        ("process 7 yes no /bin/x\nprocess 8 no no \n", None),  # a process that is about to exit
        ("process 7 yes yes /usr/bin/etcd\n", "etcd is a Go program, whose runtime asks"),
        ("process 7 yes no /bin/sh\nprocess 8 no yes /bin/etcd\n", "etcd is a Go program"),
        ("process 7 no no /bin/busybox\n", "busybox did not load libfaketime"),
        ("sh: not found", "cannot be listed (sh: not found)"),
        ("", "cannot be listed (no answer)"),
    ],
)
def test_an_unsupported_program_is_refused_with_the_reason(printed, words):
    reason = why_deaf(printed)
    assert reason is None if words is None else words in reason


class FakeNode:
    """A fake node: it sees the shifted time if it `hears`, and reads the time if it `asks`.

    With `serves`, it also reads the time to answer readiness checks.
    """

    def __init__(self, *, hears=True, asks=True, serves=False, answer=None, begins=0):
        self.hears, self.asks, self.serves, self.answer = hears, asks, serves, answer
        # number of inspections that find a process which has not loaded the library yet
        self.begins = begins
        self.line = setting(ClockError())
        self.read = self.hangs = False

    async def write(self, line):
        self.line, self.read = line, False

    async def was_read(self):
        self.read = self.read or self.asks
        return self.read

    async def wait_ready(self, name):
        assert name == "x"
        self.read = self.read or self.serves

    async def processes(self):
        self.begins -= 1
        return HEARS if self.begins < 0 else f"{HEARS}process 9 no no /bin/x\n"

    async def ask(self, command):
        assert command == ("now",)
        if self.hangs:
            await asyncio.Event().wait()
        if self.answer is not None:
            return self.answer
        now_ns = time.time_ns()
        return 0, str((now_ns + (told_ns(self.line, now_ns) if self.hears else 0)) / S)


def clock_of(node, *, probe=True):
    spec = NodeSpec(name="x", role="r", ports=(), command=("x",))
    probed = NodeSpec(name="x", role="r", ports=(), command=("x",), clock_probe=("now",))
    return ForeignClock(probed if probe else spec, node)


@pytest.mark.parametrize(
    ("node", "probe", "words"),
    [
        (FakeNode(), True, None),
        (FakeNode(), False, None),
        (FakeNode(asks=False, serves=True), False, None),
        (FakeNode(begins=2), True, None),
        (FakeNode(begins=99), True, "x did not load libfaketime"),
        (FakeNode(hears=False), True, r"moved by \+2.0 s, but .* measured as [+-]0.000 s off"),
        (FakeNode(answer=(3, "no such database")), True, "exited with 3: 'no such database'"),
        (FakeNode(answer=(None, "")), True, "the command took too long"),
        (FakeNode(answer=(0, "noon")), True, "the output is not a time: 'noon'"),
        (
            FakeNode(asks=False),
            False,
            r"did not ask for the time .* declare a `clock_probe`",
        ),
    ],
)
async def test_a_clock_that_does_not_move_is_refused(monkeypatch, node, probe, words):
    monkeypatch.setattr(foreignclock, "_ASKS_WITHIN_S", 0.0)
    monkeypatch.setattr(foreignclock, "_BEGINS_S", 0.0)
    clock = clock_of(node, probe=probe)
    if words is None:
        await clock.prove(node.wait_ready)
    else:
        with pytest.raises(UsageError, match=f"a clock fault cannot reach x: .*{words}"):
            await clock.prove(node.wait_ready)
    assert node.line == setting(ClockError())


async def test_bites_are_measured_shifts_not_requested_ones():
    node = FakeNode()
    clock = clock_of(node)
    assert abs(await clock.skew(UP, offset_ns=5 * S, drift_ppm=0) - 5000) <= 50
    node.hears = False  # the node sees no further settings
    assert abs(await clock.skew(UP, offset_ns=9 * S, drift_ppm=0) - 5000) <= 50
    assert await clock.skew(UP, offset_ns=0, drift_ppm=0) <= 50
    node.hears = True
    await clock.mend(UP)  # the clock is already correct
    assert node.line.startswith("+0.000000000 ")


async def test_a_probe_that_hangs_is_given_up_and_reads_are_looked_at(monkeypatch):
    monkeypatch.setattr(foreignclock, "_PROBE_S", 0.01)
    node = FakeNode()
    node.hangs = True
    clock = clock_of(node)
    assert await clock.skew(UP, offset_ns=5 * S, drift_ppm=0) == 5000
    assert await clock.skew(UP, offset_ns=0, drift_ppm=0) == 5000


async def test_an_unread_shift_counts_once_it_is_read(monkeypatch):
    monkeypatch.setattr(foreignclock, "_FELT_WITHIN_S", 0.0)
    node = FakeNode(asks=False)
    clock = clock_of(node, probe=False)
    assert await clock.skew(PAUSED, offset_ns=-4 * S, drift_ppm=0) == 0
    assert await clock.skew(UP, offset_ns=0, drift_ppm=0) == 0  # the node never saw the setting
    assert await clock.skew(DOWN, offset_ns=3 * S, drift_ppm=0) == 0
    node.asks = True  # the node starts
    assert await clock.skew(UP, offset_ns=0, drift_ppm=0) == 6000


async def test_a_drift_is_felt_when_it_is_taken_away(monkeypatch):
    clock = clock_of(FakeNode(), probe=False)
    now_ns = time.time_ns()
    monkeypatch.setattr(foreignclock.time, "time_ns", lambda: now_ns)
    assert await clock.skew(UP, offset_ns=0, drift_ppm=100_000) == 0
    now_ns += 4 * S
    assert await clock.skew(UP, offset_ns=0, drift_ppm=0) == 400
