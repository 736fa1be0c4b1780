"""Runs one suite against two servers: the harness's own Toxiproxy, and a real one."""

import contextlib
import functools
import http.client
import itertools
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import run_program
from tests.support.waiting import LIMIT_S

REPOSITORY = Path(__file__).parents[2]
REAL_VERSION = "v2.12.0"
REAL_FOLDER = REPOSITORY / ".cache" / f"toxiproxy-{REAL_VERSION}"


@dataclass
class Server:
    kind: str
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, str]:
        """Send a request; return status, body (decoded if it is JSON) and content type."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)
        try:
            content = raw if raw is not None else None if body is None else json.dumps(body)
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            text = response.read().decode()
            try:
                decoded = json.loads(text)
            except ValueError:
                decoded = text
            return response.status, decoded, response.headers.get("Content-Type", "")
        finally:
            connection.close()


def build_real_server() -> Path:
    """Build the real server and return its binary; skip the test if this is impossible."""
    binary = REAL_FOLDER / "server"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        pytest.skip("the real Toxiproxy server needs `go` to be built")
    REAL_FOLDER.mkdir(parents=True, exist_ok=True)
    source = f"github.com/Shopify/toxiproxy/v2/cmd/server@{REAL_VERSION}"
    folder = REAL_FOLDER
    built = run_program(go, "install", source, cwd=folder, timeout_s=280, GOBIN=str(folder))
    if built.returncode != 0:
        pytest.skip(f"the real Toxiproxy server cannot be built: {built.stderr[-500:]}")
    return binary


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_serving(server: Server, process: subprocess.Popen[Any]) -> None:
    """Wait until Toxiproxy answers on the port.

    A mere connection proves nothing: another program may have taken the port since it was probed.
    """
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.request("GET", "/version")[0] == 200:
                return
        time.sleep(0.02)
    raise AssertionError(f"{server.url} never answered")


def start_server(kind: str, *extra: str) -> tuple[Server, subprocess.Popen[bytes]]:
    if kind == "real":
        binary, port = build_real_server(), free_port()
        process = subprocess.Popen(
            [binary, "-host", "127.0.0.1", "-port", str(port), "-proxy-metrics", *extra],
            stdout=subprocess.DEVNULL,
        )
        server = Server(kind, "127.0.0.1", port)
        wait_serving(server, process)
        return server, process
    words = (*("--listen", "127.0.0.1:0", "--proxy-metrics"), *extra)
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.environments.toxiproxy", *words],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    process.stdout.close()
    host, _, port_text = line.strip().removeprefix("http://").rpartition(":")
    return Server(kind, host, int(port_text)), process


@contextlib.contextmanager
def serving(kind: str, *extra: str) -> Iterator[Server]:
    server, process = start_server(kind, *extra)
    try:
        yield server
    finally:
        process.terminate()
        process.wait(LIMIT_S)


@pytest.fixture(scope="session")
def both_servers() -> Iterator[Callable[[str], Server]]:
    with contextlib.ExitStack() as running:
        yield functools.cache(lambda kind: running.enter_context(serving(kind)))


@pytest.fixture(params=["ours", pytest.param("real", marks=pytest.mark.toxiproxy)])
def server(request: pytest.FixtureRequest, both_servers: Callable[[str], Server]) -> Server:
    return _clean(both_servers(request.param))


@pytest.fixture
def ours(both_servers: Callable[[str], Server]) -> Server:
    return _clean(both_servers("ours"))


def _clean(server: Server) -> Server:
    for name in server.request("GET", "/proxies")[1]:
        server.request("DELETE", f"/proxies/{name}")
    return server


class Upstream:
    """A TCP server that runs `behaviour` in a thread per connection."""

    def __init__(self, behaviour: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._behaviour = behaviour
        self._open: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            conn.settimeout(LIMIT_S)
            self._open.append(conn)
            threading.Thread(target=self._run, args=(conn,), daemon=True).start()

    def _run(self, conn: socket.socket) -> None:
        try:
            self._behaviour(conn)
        except OSError:
            pass
        finally:
            conn.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in self._open:
            conn.close()


def echo(conn: socket.socket) -> None:
    while data := conn.recv(65536):
        conn.sendall(data)


@pytest.fixture
def upstream() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    made: list[Upstream] = []

    def make(behaviour: Callable[[socket.socket], None]) -> str:
        made.append(Upstream(behaviour))
        return made[-1].address

    yield make
    for each in made:
        each.close()


_numbers = itertools.count()


class Passage:
    """A proxy under test, with methods to connect through it."""

    def __init__(self, server: Server, upstream: str, *, name: str = "") -> None:
        self.server = server
        self.name = name or f"p{next(_numbers)}"
        body = {"name": self.name, "listen": "127.0.0.1:0", "upstream": upstream}
        status, self.info, _ = server.request("POST", "/proxies", body)
        assert status == 201
        self._open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        host, port = self.info["listen"].split(":")
        conn = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.append(conn)
        return conn

    def add(self, kind: str, stream: str = "downstream", **attributes: int) -> str:
        toxicity = attributes.pop("toxicity", 1.0)
        body = {"type": kind, "stream": stream, "toxicity": toxicity, "attributes": attributes}
        status, made, _ = self.server.request("POST", f"/proxies/{self.name}/toxics", body)
        assert status == 200, made
        return made["name"]

    def change(self, toxic: str, **attributes: int) -> None:
        path = f"/proxies/{self.name}/toxics/{toxic}"
        assert self.server.request("POST", path, {"attributes": attributes})[0] == 200

    def remove(self, toxic: str) -> None:
        assert self.server.request("DELETE", f"/proxies/{self.name}/toxics/{toxic}")[0] == 204

    def close(self) -> None:
        for conn in self._open:
            conn.close()


@pytest.fixture
def through(
    server: Server, upstream: Callable[[Callable[[socket.socket], None]], str]
) -> Iterator[Callable[..., Passage]]:
    made: list[Passage] = []

    def make(behaviour: Callable[[socket.socket], None] = echo, *, at: Server = server) -> Passage:
        made.append(Passage(at, upstream(behaviour)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def receive(conn: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = conn.recv(size - len(data))
        assert part, f"the connection ended after {len(data)} of {size} bytes"
        data += part
    return data


def ask(conn: socket.socket, data: bytes) -> bytes:
    conn.sendall(data)
    return receive(conn, len(data))


def receive_all(conn: socket.socket) -> bytes:
    data = b""
    while part := conn.recv(65536):
        data += part
    return data


def is_silent(conn: socket.socket, for_s: float) -> bool:
    """Whether neither data nor the end of the connection arrives."""
    before = conn.gettimeout()
    conn.settimeout(for_s)
    try:
        conn.recv(1)
    except TimeoutError:
        return True
    finally:
        conn.settimeout(before)
    return False
