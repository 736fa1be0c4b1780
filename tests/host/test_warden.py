"""The warden undoes faults at their deadlines, or when the harness ends."""

import contextlib
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.environments import procfs
from harness.environments.controller import this_controller
from harness.environments.warden import (
    RUN_VARIABLE,
    Continue,
    HttpRequest,
    Kill,
    Run,
    Warden,
    leftovers,
    run_environment,
)
from harness.errors import InfrastructureError
from tests.support.cleaning import only_cleaner
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def warden(tmp_path):
    warden = Warden.start(f"warden-{os.getpid()}", log=tmp_path / "warden.log")
    yield warden
    if warden._process.poll() is None:
        warden.close()


def append(path: Path, text: str) -> Run:
    return Run([sys.executable, "-c", f"open({str(path)!r}, 'a').write({text!r})"])


def sleeper(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "100"], env=os.environ | environment)


def test_everything_is_undone_in_reverse_and_released_things_are_not(warden, tmp_path):
    out = tmp_path / "out"
    for text in "abcd":
        warden.guard(text, append(out, text))
    warden.release("b")
    warden.release("never guarded")
    warden.guard("a", append(out, "A"))  # guarding `a` again moves it to the end
    warden.close()

    assert out.read_text() == "Adc"
    assert "undid d" in (tmp_path / "warden.log").read_text()


def test_a_deadline_undoes_one_and_a_longer_one_replaces_it(warden, tmp_path):
    out = tmp_path / "out"
    os.kill(warden.pid, signal.SIGSTOP)  # pause the warden, so that it reads all three at once
    warden.guard("long", append(out, "l"), deadline_s=0.2)
    warden.guard("long", append(out, "L"), deadline_s=600)
    warden.guard("short", append(out, "s"), deadline_s=0.2)
    os.kill(warden.pid, signal.SIGCONT)
    wait_until(lambda: out.exists() and out.read_text() == "s")
    time.sleep(0.2)
    assert out.read_text() == "s"
    warden.close()
    assert out.read_text() == "sL"


def test_a_failing_undo_does_not_keep_the_others(warden, tmp_path):
    out = tmp_path / "out"
    warden.guard("good", append(out, "x"))
    warden.guard("bad", Run(["false"]))
    warden.guard("missing", Run(["/no/such/program"]))
    warden.guard("http", HttpRequest("DELETE", "http://127.0.0.1:9/"))
    warden.close()

    assert out.read_text() == "x"
    log = (tmp_path / "warden.log").read_text()
    assert all(f"could not undo {key}:" in log for key in ("bad", "missing", "http"))


def test_a_failed_undo_is_retried_at_the_end(warden, tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    fails_once = f"mkdir {first} && exit 1; touch {again}"
    warden.guard("removal", Run(["sh", "-c", fails_once]))
    warden.close()
    assert again.exists()


def test_processes_are_killed_continued_and_never_mistaken(warden):
    victim, frozen, other = sleeper(), sleeper(), sleeper()
    try:
        identity = procfs.identify(victim.pid)
        warden.guard("kill", Kill(*identity))
        frozen_id = procfs.identify(frozen.pid)
        frozen.send_signal(signal.SIGSTOP)
        wait_until(lambda: procfs.state(frozen_id) == "T")
        warden.guard("thaw", Continue(*frozen_id), deadline_s=0.01)
        wait_until(lambda: procfs.state(frozen_id) != "T")
        # The guarded start time differs, so the pid now belongs to another process.
        warden.guard("recycled", Kill(other.pid, procfs.identify(other.pid).start_ticks - 1))
        warden.close()
        assert victim.wait(LIMIT_S) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (victim, frozen, other):
            process.kill()
            process.wait(LIMIT_S)


def test_http_undo_accepts_resources_that_are_gone(warden, tmp_path):
    seen: list[tuple[str, str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            length = int(self.headers.get("Content-Length", 0))
            seen.append((self.command, self.path, self.rfile.read(length)))
            self.send_response(404 if "gone" in self.path else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_DELETE = answer  # noqa: N815 - the base class's words
        do_POST = answer  # noqa: N815

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    warden.guard("a", HttpRequest("POST", f"{url}/broken", "{}"))
    warden.guard("b", HttpRequest("DELETE", f"{url}/gone%3A1"))
    warden.close()
    server.shutdown()
    server.server_close()

    assert seen == [("DELETE", "/gone%3A1", b""), ("POST", "/broken", b"{}")]
    log = (tmp_path / "warden.log").read_text()
    assert "undid b" in log
    assert "could not undo a" in log


def test_signals_of_a_terminal_do_not_reach_it(warden, tmp_path):
    out = tmp_path / "out"
    warden.guard("x", append(out, "x"))
    warden.guard("up", append(tmp_path / "up", "x"), deadline_s=0.0)
    # the child sets its signal handlers before it creates the file
    wait_until((tmp_path / "up").exists)
    assert os.getsid(warden.pid) == warden.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(warden.pid, number)
    warden.close()
    assert out.read_text() == "x"


def test_unguarded_processes_are_swept(warden):
    run_id = f"warden-{os.getpid()}"
    mine = sleeper(**run_environment(run_id, "node:x"))
    others = sleeper(**run_environment(run_id + "0", "node:x"))
    # another live driver that uses the same run id
    twin_owner = str(procfs.identify(others.pid))
    twin = sleeper(**run_environment(run_id, "node:x") | {"HARNESS_CONTROLLER": twin_owner})
    try:
        warden.close()
        assert mine.wait(LIMIT_S) == -signal.SIGKILL
        assert others.poll() is None
        assert twin.poll() is None
    finally:
        for process in (mine, others, twin):
            process.kill()
            process.wait(LIMIT_S)


def test_a_dead_warden_is_noticed(warden):
    os.kill(warden.pid, signal.SIGKILL)
    warden._process.wait(LIMIT_S)
    with pytest.raises(InfrastructureError, match="is gone"):
        warden.guard("x", Run(["true"]))
    with pytest.raises(InfrastructureError, match="code -9"):
        warden.close()


def test_leftovers_are_of_dead_controllers_only():
    prefix = f"leftover-{os.getpid()}-"
    with only_cleaner(), contextlib.ExitStack() as at_the_end:
        alive, dead, odd = (
            sleeper(**variables)
            for variables in (
                run_environment(prefix + "alive", "node:x"),
                run_environment(prefix + "dead", "node:y")
                | {"HARNESS_CONTROLLER": str(this_controller()._replace(boot_id="0-0"))},
                {RUN_VARIABLE: prefix + "odd", "HARNESS_CONTROLLER": "nonsense"},
            )
        )
        for process in (alive, dead, odd):
            at_the_end.callback(process.wait, LIMIT_S)
            at_the_end.callback(process.kill)
        wait_until(lambda: procfs.environment_of(dead.pid).get(RUN_VARIABLE) == prefix + "dead")
        ours = [(p.pid, run, role) for p, run, role in leftovers() if run.startswith(prefix)]
        assert ours == [(dead.pid, prefix + "dead", "node:y")]
