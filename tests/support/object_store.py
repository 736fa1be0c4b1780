"""An S3 server on loopback (moto), and a proxy that answers one request in ten with 503.

The proxy does not forward half of these requests. It forwards the others but drops the answer, so
the server has executed a request that the client sees as failed. It can also refuse with another
code.

A lake relies on conditional writes (`If-None-Match: *`), which a real store executes atomically.
Moto checks and writes in two steps, so the proxy sends these requests one by one.
"""

import contextlib
import http.client
import random
import socket
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.waiting import wait_until

BUCKET = "histories"
BUSY = "SlowDown"
START_S = 60.0
COUNT = "/-refused"
CHANCE = "/-chance/"
HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]


def options_for(endpoint):
    """Return the settings of a client, as storage options or environment variables."""
    return {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "anything",
    }  # fmt: skip


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


def started(*words):
    """Start a process of this module; return it and the port that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.object_store", *words],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process, int(process.stdout.readline() or 0)


def stopped(process):
    process.kill()
    process.wait()
    process.stdout.close()


@contextlib.contextmanager
def s3_server():
    """Run a server with an empty bucket, and yield its endpoint."""
    server, port = started("serve")
    endpoint = f"http://{HOST}:{port}"

    def made():
        assert server.poll() is None, "the server ended; its output is above"
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except OSError:
            return False

    try:
        wait_until(made, START_S)
        yield endpoint
    finally:
        stopped(server)


def serve(host=HOST, port="0"):
    """Run a server until the process ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    store, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def answer(environ, start_response):
        if "HTTP_IF_NONE_MATCH" not in environ:
            return store(environ, start_response)
        with one_at_a_time:
            return store(environ, start_response)

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_):
            """Suppress the server's log."""

    server = make_server(host, int(port), answer, threaded=True, request_handler=Quiet)
    print(server.port, flush=True)
    server.serve_forever()


class Handler(BaseHTTPRequestHandler):
    """A handler that forwards one request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Suppress the server's log."""

    def _answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length") if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # skip the trailers
        return b"".join(parts)

    def _forward(self):
        body = self._body()
        fate = self.server.fate()
        if fate != "before":
            upstream = http.client.HTTPConnection(*self.server.upstream, timeout=60)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"transfer-encoding", "content-length", "expect"}:
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            found = answer.status, answer.getheaders(), answer.read()
            upstream.close()
        self._answer(*(found if fate is None else self.server.refusal))

    def do_GET(self):
        if self.path == COUNT:
            self._answer(200, [], str(self.server.refused).encode())
        elif self.path.startswith(CHANCE):
            self.server.chance = float(self.path.removeprefix(CHANCE))
            self._answer(200, [], b"")
        else:
            self._forward()

    do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815 - the library's names


class Proxy(ThreadingHTTPServer):
    """A proxy that counts its refusals."""

    daemon_threads = True
    request_queue_size = 128  # with the default of 5, concurrent writers would wait for the kernel

    def __init__(self, endpoint, *, chance, seed, code):
        super().__init__((HOST, 0), Handler)
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self.upstream = host, int(port)
        self.refused = 0
        self.chance = chance
        self.refusal = (
            503 if code == BUSY else 403, [], f"<Error><Code>{code}</Code></Error>".encode(),
        )  # fmt: skip
        self._moments = ["before", "after"] if code == BUSY else ["before"]
        self._random, self._lock = random.Random(seed), threading.Lock()

    def fate(self):
        """Decide whether a request fails, before or after its execution."""
        with self._lock:
            if self._random.random() >= self.chance:
                return None
            self.refused += 1
            return self._random.choice(self._moments)

    def handle_error(self, *_):
        """Ignore errors of clients that were killed or have disconnected."""


@contextlib.contextmanager
def flaky_proxy(endpoint, *, chance=0.1, seed=1, code=BUSY):
    """Run a proxy in front of the server at `endpoint`, and yield its endpoint.

    A request that is refused with a code other than `SlowDown` (a 403) is not forwarded.

    The proxy is a separate process, because some calls of `deltalake` hold the GIL while they wait.
    """
    proxy, port = started("refuse", endpoint, str(chance), str(seed), code)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        stopped(proxy)


def refused_by(proxy):
    with urllib.request.urlopen(f"{proxy}{COUNT}", timeout=30) as answer:
        return int(answer.read())


def refuse_from_now(proxy, chance):
    """Let the proxy refuse this share of further requests."""
    with urllib.request.urlopen(f"{proxy}{CHANCE}{chance}", timeout=30):
        pass


def refuse(endpoint, chance, seed, code):
    proxy = Proxy(endpoint, chance=float(chance), seed=int(seed), code=code)
    print(proxy.server_address[1], flush=True)
    proxy.serve_forever()


if __name__ == "__main__":
    {"serve": serve, "refuse": refuse}[sys.argv[1]](*sys.argv[2:])
