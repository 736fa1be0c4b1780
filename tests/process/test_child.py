"""The state of a child process is verified, since sending a signal proves nothing."""

import pytest

from harness.environments.process import child
from harness.errors import InfrastructureError

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("process")]


async def test_a_pause_that_stops_nothing_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(child, "_STATE_TIMEOUT_S", 0.2)
    sleeper = child.Child(
        ["sleep", "60"], folder=tmp_path, environment={}, on_output=lambda _: None,
        on_exit=lambda _: None, on_lost=lambda _: None,
    )  # fmt: skip
    try:
        with monkeypatch.context() as patch:
            patch.setattr(child.Child, "signal", lambda *_: True)
            with pytest.raises(InfrastructureError, match="did not stop"):
                await sleeper.wait_stopped(stopped=True)
        sleeper.signal(child.signal.SIGSTOP)
        await sleeper.wait_stopped(stopped=True)
        with pytest.raises(InfrastructureError, match="did not continue"):
            await sleeper.wait_stopped(stopped=False)
    finally:
        sleeper.signal(child.signal.SIGKILL)
        await sleeper.exited.wait()
