"""The driver sends commands over the control channel, and nodes carry them out."""

import asyncio
import contextlib
import os
import random
import threading
import time

import msgspec
import pytest

from harness.cluster import DiskQuality, NodeSpec, NodeState
from harness.environments.faulty import ClockError, DiskTrouble, FaultyClock
from harness.environments.host import control as control_module
from harness.environments.host import obedience as obedience_module
from harness.environments.host.control import Command, Condition, NodeControl
from harness.environments.host.env import RealClock
from harness.environments.host.lines import NodeLine, encode_line
from harness.environments.host.logs import EventBus, NodeLog
from harness.environments.host.obedience import Obedience
from harness.errors import InfrastructureError, UsageError
from tests.support.waiting import LIMIT_S, until, wait_until

HOUR_NS = 3600 * 10**9
FULL = DiskQuality(full=True)


class Life:
    """One incarnation of a node, at the node's end of the channel; if `deaf`, it never answers."""

    def __init__(self, boot: int, log: NodeLog) -> None:
        self.clock = FaultyClock(RealClock(), ClockError())
        self.trouble = DiskTrouble(random.Random(1), "n")
        self.lines: list[bytes] = []
        self.deaf = False
        self._log = log
        self.obedience = Obedience(self.clock, self.trouble, boot=boot, write=self._write)

    def _write(self, level, event, data):
        self._log.feed(encode_line(NodeLine(1, level, event, "a", data)))

    def hear(self, line: bytes) -> None:
        self.lines.append(line)
        if not self.deaf:
            self.obedience.take(line)

    def listen(self) -> None:
        self.obedience.report()

    def feel(self, times: int) -> None:
        for _ in range(times):
            with pytest.raises(OSError, match="no space left"):
                self.trouble.fail("f", writes=True)


class World:
    """A node whose incarnations are controlled by the test."""

    def __init__(self, *, foreign: bool = False) -> None:
        self.events = []
        bus = EventBus(pytest.fail)
        bus.subscribe(self.events.append)
        self.log = NodeLog("a", bus, None)
        self.state = NodeState.DOWN
        self.life: Life | None = None
        self.boot = -1
        entry = None if foreign else "tests.process.nodes:main"
        self.control = NodeControl(
            NodeSpec(name="a", role="r", ports=(), entry=entry),
            turn=asyncio.Lock(),
            state=lambda: self.state,
            send=self.send,
            springs_have_run=bus.springs_have_run,
        )
        self.bus = bus
        bus.stop_with_traps(self.control.stop_at)
        self.log.on_answer = self.control.hear

    async def send(self, line: bytes) -> None:
        assert self.life is not None
        self.life.hear(line)

    def start(self, *, listens: bool = True) -> Life:
        self.boot += 1
        self.life = Life(self.boot, self.log)
        self.life.obedience.be(self.control.condition)
        self.state = NodeState.RUNNING
        self.control.started(self.boot)
        if listens:
            self.life.listen()
        return self.life

    def change(self, state: NodeState) -> None:
        self.state = state
        self.control.let_go()

    def stand(self, number: int, *, event: str | None = "x") -> None:
        """Have the node announce an event and then wait for the driver."""
        told = [] if event is None else [NodeLine(1, "event", event, "a", {})]
        told.append(NodeLine(1, "control", "stopped", "a", {"stop": number}))
        self.log.feed(b"".join(map(encode_line, told)))

    def ahead_h(self) -> int:
        right = RealClock().wall_ns()
        return round((self.life.clock.wall_ns() - right) / HOUR_NS)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(control_module, "_ANSWER_TIMEOUT_S", LIMIT_S)


async def test_a_condition_is_in_force_for_its_node_only():
    world = World()
    life = world.start()
    await world.control.skew(offset_ns=3 * HOUR_NS, drift_ppm=0)
    assert world.ahead_h() == 3
    assert await world.control.worsen_disk(FULL) == 0
    life.feel(4)
    assert world.ahead_h() == 3  # the second setting leaves the first unchanged
    await world.control.skew(offset_ns=0, drift_ppm=0)
    life.feel(2)
    assert await world.control.worsen_disk(DiskQuality()) == 6
    assert await world.control.worsen_disk(DiskQuality()) == 0
    assert world.log.tail(9) == []
    assert world.events == []


async def test_a_node_that_is_down_or_paused_gets_it_when_it_goes_on():
    world = World()
    await world.control.skew(offset_ns=HOUR_NS, drift_ppm=0)
    life = world.start()
    assert life.lines == []
    assert world.ahead_h() == 1
    world.change(NodeState.PAUSED)
    await world.control.skew(offset_ns=2 * HOUR_NS, drift_ppm=0)
    assert await world.control.worsen_disk(FULL) == 0
    assert life.lines == []
    world.state = NodeState.RUNNING
    life.deaf = True
    await world.control.catch_up()  # returns at once, because this node does not answer
    life.obedience.take(life.lines.pop())
    assert world.ahead_h() == 2
    life.feel(1)
    await world.control.catch_up()
    assert life.lines == []


async def test_effects_on_a_dead_node_are_counted_as_far_as_known():
    world = World()
    life = world.start()
    await world.control.worsen_disk(FULL)
    life.feel(3)
    await world.control.skew(offset_ns=1, drift_ppm=0)
    life.feel(5)
    world.change(NodeState.DOWN)
    life = world.start()
    life.feel(7)
    life.obedience.report()  # the node reports its condition because it exits on its own
    world.change(NodeState.DOWN)
    world.start().feel(2)
    assert await world.control.worsen_disk(DiskQuality()) == 3 + 7 + 2


@pytest.mark.parametrize("state", [NodeState.DOWN, NodeState.PAUSED])
async def test_a_leaving_node_is_not_awaited(state):
    world = World()
    life = world.start()
    life.deaf = True
    setting = asyncio.create_task(world.control.worsen_disk(FULL))
    await until(lambda: life.lines)
    world.change(state)
    assert await setting == 0


async def test_a_node_that_comes_up_is_waited_for(monkeypatch):
    monkeypatch.setattr(control_module, "_ANSWER_TIMEOUT_S", 0.01)
    world = World()
    life = world.start(listens=False)
    life.deaf = True
    setting = asyncio.create_task(world.control.worsen_disk(FULL))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(setting), 0.1)
    life.deaf = False
    life.obedience.take(life.lines[0])
    assert await setting == 0

    monkeypatch.setattr(control_module, "_START_TIMEOUT_S", 0.01)
    world = World()
    world.start(listens=False).deaf = True
    with pytest.raises(InfrastructureError, match="did not start to read commands"):
        await world.control.worsen_disk(FULL)


async def test_a_silent_node_is_asked_twice_and_reported(monkeypatch):
    monkeypatch.setattr(control_module, "_ANSWER_TIMEOUT_S", 0.02)
    world = World()
    life = world.start()
    life.deaf = True
    with pytest.raises(InfrastructureError, match="a runs, but did not carry out"):
        await world.control.skew(offset_ns=HOUR_NS, drift_ppm=0)
    assert len(life.lines) == 2
    life.obedience.take(life.lines[1])  # a late answer is harmless
    life.deaf = False
    await world.control.mend()
    assert world.ahead_h() == 0


async def test_an_answer_that_was_lost_is_had_again(monkeypatch):
    monkeypatch.setattr(control_module, "_ANSWER_TIMEOUT_S", 0.2)
    world = World()
    life = world.start()
    life.deaf = True
    setting = asyncio.create_task(world.control.worsen_disk(FULL))
    await until(lambda: life.lines)
    life.deaf = False
    assert await setting == 0
    life.feel(1)


async def test_mending_a_machine_that_is_well_says_nothing():
    world = World()
    life = world.start()
    await world.control.mend()
    assert life.lines == []
    await world.control.skew(offset_ns=0, drift_ppm=5)
    await world.control.worsen_disk(FULL)
    await world.control.mend()
    assert (life.clock.rate, life.trouble.quality) == (1.0, DiskQuality())


async def test_the_clock_and_the_disk_of_a_foreign_program_are_out_of_reach():
    control = World(foreign=True).control
    with pytest.raises(UsageError, match="a clock fault cannot reach a: this foreign program"):
        await control.skew(offset_ns=1, drift_ppm=0)
    with pytest.raises(UsageError, match="a disk fault cannot reach a: a foreign program"):
        await control.worsen_disk(FULL)
    await control.mend()


async def test_an_invalid_answer_is_skipped(caplog):
    world = World()
    world.start()
    world.log.feed(encode_line(NodeLine(1, "control", "obeyed", "a", {"number": "many"})))
    assert "'many'" in caplog.text
    assert await world.control.worsen_disk(FULL) == 0


async def test_a_node_goes_on_once_the_springs_of_its_event_have_run():
    world = World()
    life = world.start()
    order, waits = [], asyncio.Event()

    async def spring(event):
        order.append(event.kind)
        # even a node that is stopped at an event carries this out
        await world.control.worsen_disk(FULL)
        await waits.wait()
        order.append("sprung")

    def told() -> Command:
        return msgspec.json.decode(life.lines[-1], type=Command)

    remove = world.bus.trap("x", spring)
    remove_another = world.bus.trap("x", spring)
    await until(lambda: life.lines)
    assert told().condition.stops_at == ("x",)
    remove_another()
    world.stand(1)
    await until(lambda: life.trouble.quality != DiskQuality())
    assert (order, told().goes_on) == (["x"], 0)
    waits.set()
    await until(lambda: told().goes_on == 1)
    assert order == ["x", "sprung"]
    remove()
    await until(lambda: told().condition.stops_at == ())
    assert told().condition.disk == FULL


async def test_a_node_that_its_trap_froze_goes_on_when_it_is_thawed():
    world = World()
    life = world.start()

    async def spring(event):
        world.change(NodeState.PAUSED)

    world.bus.trap("x", spring)
    await until(lambda: life.lines)
    life.lines.clear()
    world.stand(3)
    await until(lambda: world.state is NodeState.PAUSED and not world.control._tasks)
    assert life.lines == []
    world.state = NodeState.RUNNING
    await world.control.catch_up()
    assert msgspec.json.decode(life.lines[0], type=Command).goes_on == 3


async def test_nodes_that_start_know_the_traps_and_new_lives_count_from_the_first_stop():
    world = World()

    async def spring(event):
        pass

    world.bus.trap("x", spring)
    assert world.control.condition.stops_at == ("x",)
    life = world.start()
    world.stand(9, event=None)
    await until(lambda: life.lines)
    world.change(NodeState.DOWN)
    life = world.start()
    await world.control.worsen_disk(FULL)
    assert msgspec.json.decode(life.lines[0], type=Command).goes_on == 0


def line(boot: int = 0, number: int = 1, disk: DiskQuality = FULL) -> bytes:
    command = Command(number=number, boot=boot, condition=Condition(disk=disk))
    return msgspec.json.encode(command) + b"\n"


class Node:
    """The node's end of the control channel, without a node."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.trouble = DiskTrouble(random.Random(1), "n")
        clock = FaultyClock(RealClock(), ClockError())
        self.obedience = Obedience(clock, self.trouble, boot=0, write=self._write)

    def _write(self, level, event, data):
        assert level == "control"
        self.told.append((event, data["stop" if event == "stopped" else "number"]))

    @property
    def answers(self) -> list[int]:
        return [number for _, number in self.told]


def test_commands_come_in_any_pieces_and_rubbish_is_passed_over(caplog):
    node = Node()
    lines = (
        line(number=1) + b"what?\n" + line(number=2) + line(boot=1, number=3) + b'{"number": 4}\n'
    )
    for place in range(len(lines)):
        node.obedience.take(lines[place : place + 1])
    assert node.answers == [1, 2]
    node.obedience.take(line(number=1, disk=DiskQuality()))  # outdated, so it is ignored
    assert (node.told.pop(), node.trouble.quality == DiskQuality()) == (("obeyed", 1), False)
    assert "what?" in caplog.text
    node.obedience.take(b"x" * 100_000)
    node.obedience.take(b"\n" + line(number=5))
    assert node.answers == [1, 2, 5]


async def test_earlier_conditions_are_in_force_when_a_node_starts_to_listen():
    node = Node()
    receiver, sender = os.pipe()
    os.write(sender, line())
    loop = asyncio.get_running_loop()
    node.obedience.listen(loop, receiver)
    assert (node.answers, node.trouble.quality == DiskQuality()) == ([1, 0], False)
    os.write(sender, line(number=2, disk=DiskQuality()))
    await until(lambda: node.trouble.quality == DiskQuality())
    os.close(sender)
    # wait until the node itself has closed the channel
    await until(lambda: not loop.remove_reader(receiver))
    os.close(receiver)


@pytest.mark.parametrize("path", ["/dev/null", __file__])
async def test_only_a_pipe_is_a_channel(path):
    node = Node()
    descriptor = os.open(path, os.O_RDONLY)
    node.obedience.listen(asyncio.get_running_loop(), descriptor)
    os.close(descriptor)
    assert node.answers == []


@pytest.fixture(name="channel")
def channel_fixture():
    receiver, sender = os.pipe()
    yield receiver, sender
    for end in (receiver, sender):
        with contextlib.suppress(OSError):
            os.close(end)


def stops(node: Node, receiver: int) -> float:
    """Return how long the node stops at an event."""
    condition = Condition(stops_at=("x",))
    node.obedience.be(condition)
    loop = asyncio.get_running_loop()
    node.obedience.listen(loop, receiver)
    begin_s = time.monotonic()
    node.obedience.stand_still(loop, "y")
    node.obedience.stand_still(loop, "x")
    return time.monotonic() - begin_s


async def test_a_frozen_node_continues_by_itself_after_its_lease(monkeypatch, caplog, channel):
    monkeypatch.setattr(obedience_module, "_STOP_S_MAX", 0.2)
    node = Node()
    assert stops(node, channel[0]) >= 0.2
    assert "continued after the event x" in caplog.text
    assert node.told == [("obeyed", 0), ("stopped", 1)]
    asyncio.get_running_loop().remove_reader(channel[0])


async def test_a_node_without_a_driver_is_never_frozen(monkeypatch, caplog, channel):
    monkeypatch.setattr(obedience_module, "_STOP_S_MAX", LIMIT_S)
    receiver, sender = channel
    node = Node()
    node.obedience.be(Condition(stops_at=("x",)))
    os.close(sender)
    assert stops(node, receiver) < LIMIT_S
    assert caplog.text == ""


async def test_a_frozen_node_still_obeys_its_driver(monkeypatch, channel):
    monkeypatch.setattr(obedience_module, "_STOP_S_MAX", LIMIT_S)
    receiver, sender = channel
    node = Node()

    def speak() -> None:
        wait_until(lambda: ("stopped", 1) in node.told)
        os.write(sender, line(number=1))
        disk = DiskQuality(delay_ms=1)
        go = Command(number=2, boot=0, condition=Condition(disk=disk), goes_on=1)
        os.write(sender, msgspec.json.encode(go) + b"\n")

    driver = threading.Thread(target=speak)
    driver.start()
    assert stops(node, receiver) < LIMIT_S
    driver.join()
    assert node.told == [("obeyed", 0), ("stopped", 1), ("obeyed", 1), ("obeyed", 2)]
    asyncio.get_running_loop().remove_reader(receiver)
