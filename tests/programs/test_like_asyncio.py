"""Random programs give equal transcripts on the simulated loop and on asyncio's own."""

import asyncio
import json
import selectors

import pytest

from tests.programs.apps import behaviour
from tests.programs.world import printed, program, run

SEEDS = {"converse": 150, "schedule": 150, "file": 60, "stream": 10}


class JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits: if no socket is ready, the clock jumps ahead."""

    jumped_s = 0.0

    def select(self, timeout=None):
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self.jumped_s += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """The event loop and sockets of asyncio itself, on a clock that jumps."""

    def __init__(self):
        self.selector = JumpingSelector()
        super().__init__(self.selector)

    def time(self):
        return self.selector.jumped_s


def really(kind, count):
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.get_loop().set_exception_handler(lambda *_: None)
        return json.loads(json.dumps(runner.run(behaviour.transcripts(kind, count))))


def simulated(kind, count):
    async def main(s):
        await asyncio.sleep(count * 100)
        return printed(await s.cluster.logs("n1", last_lines=20_000))

    lines = run(main, (program("n1", "behaviour:main", kind, str(count)),), cpu_us=0.0)
    texts = "".join(line.removeprefix("> ") for line in lines if line[0] in "<>").split("<")
    return [json.loads(text) for text in texts if text]


@pytest.mark.parametrize("kind", SEEDS)
def test_the_same_program_hears_the_same(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real, sim = really(kind, SEEDS[kind]), simulated(kind, SEEDS[kind])

    assert len(real) == len(sim) == SEEDS[kind]
    for seed, (one, other) in enumerate(zip(real, sim, strict=True)):
        assert one == other, seed
