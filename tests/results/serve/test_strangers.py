"""The server refuses foreign callers, and requests for files outside the store."""

import contextlib
import errno
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from harness.cli import main
from results.serve import routes
from results.serve import server as server_module
from results.serve.paths import NotThere, open_below
from results.serve.server import Response
from tests.results.serve.conftest import CLIENT_S, serving
from tests.results.serve.stores import LOG, add_run
from tests.support.waiting import wait_until

TRAVERSALS = [
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/run/alpha/a1/../../../../etc/passwd",
    "/run/alpha/a1/%2e%2e/%2e%2e/%2e%2e/outside/secret.txt",
    "/run/alpha/a1/..%2f..%2f..%2foutside%2fsecret.txt",
    "/run/alpha/a1/%2fetc%2fpasswd",
    "/run/alpha/a1//etc/passwd",
    "/run/alpha/a1/case.json%00.html",
    "/run/alpha/a1/%ff",
    "/run/alpha/%2e/a1/case.json",
    "/run/../outside/secret.txt",
    "/run/alpha/../alpha/a1/case.json",
    "/run/poison/linked/secret.txt",
    "/run/poison/linked/run.json",
    "/run/poison/folder-link/secret.txt",
    "/run/series-link/x/secret.txt",
    "/run/alpha/latest/case.json",
    "/zip/poison/folder-link.zip",
    "/zip/series-link/x.zip",
    "/report/../outside/secret.txt",
    "/report/%2e%2e/alpha/a1/case.json",
    "/static/../serve.css",
    "/static/%2e%2e%2fverb.py",
    "/etc/passwd",
    "//etc/passwd",
    "/.soak/x",
    "/run/alpha/a1/.hidden",
]


def raw(served, data, *, until_close=True):
    """Send raw bytes that no client library would send; return the answer."""
    with socket.create_connection(
        ("127.0.0.1", served.server.server_port), timeout=CLIENT_S
    ) as sock:
        sock.sendall(data)
        if until_close:
            sock.shutdown(socket.SHUT_WR)
        pieces = []
        while piece := sock.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


def get(served, target, *headers):
    host = (
        ()
        if any(header.lower().startswith("host:") for header in headers)
        else ("Host: localhost",)
    )
    lines = (f"GET {target} HTTP/1.1", *host, "Connection: close", *headers)
    return raw(served, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def test_a_request_has_a_deadline_as_a_whole(served, monkeypatch):
    monkeypatch.setattr(server_module, "REQUEST_S", 0.3)
    begin_s = time.monotonic()
    with socket.create_connection(
        ("127.0.0.1", served.server.server_port), timeout=CLIENT_S
    ) as sock:
        sock.settimeout(0.05)
        while True:  # a hang would only end at the test's time limit
            with contextlib.suppress(TimeoutError):
                try:
                    sock.sendall(b"X")
                    if sock.recv(1) == b"":
                        break
                except ConnectionError:
                    break
    assert time.monotonic() - begin_s >= 0.3


def test_one_connection_may_ask_for_longer_than_one_request_may_take(served, monkeypatch):
    monkeypatch.setattr(server_module, "REQUEST_S", 5.0)
    connection = http.client.HTTPConnection(
        "127.0.0.1", served.server.server_port, timeout=CLIENT_S
    )
    with contextlib.closing(connection):
        for _ in range(3):
            connection.request("GET", "/static/serve.css")
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)


def status(answer):
    return int(answer.split(b" ", 2)[1])


@pytest.mark.lake
@pytest.mark.parametrize("target", TRAVERSALS)
def test_nothing_outside_a_store_or_a_lake_is_served(served, lake_served, target):
    (kept,) = [row["key"] for row in lake_served.api("runs")["runs"] if "/b5@" in row["key"]]
    of_kept = target.replace("alpha/a1", quote(kept))
    for there, path in ((served, target), (lake_served, target), (lake_served, of_kept)):
        answer = get(there, path)
        assert status(answer) in {400, 404}
        for secret in (b"SECRET", b"root:", b'"seed"', b"def main", LOG.encode()):
            assert secret not in answer


@pytest.mark.parametrize(
    "target", ["http://evil.example/", "*", "alpha", "http://127.0.0.1/run/alpha/a1/case.json"]
)
def test_targets_that_are_no_paths_are_refused(served, target):
    assert status(get(served, target)) in {400, 404}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", 200), ("127.0.0.1:8080", 200), ("localhost", 200), ("LOCALHOST:1", 200),
        ("[::1]:80", 200), ("127.8.8.8", 200),
        ("evil.example", 403), ("evil.example:8080", 403), ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403), ("10.0.0.1", 403), ("", 403), ("[::2]", 403),
        ("0.0.0.0", 403), ("[::1]evil.example", 403), ("[::1]x:80", 403), ("[127.0.0.1]", 403),
        ("[::1", 403), ("127.0.0.1:x", 403), ("localhost:80:80", 403), ("[::1]", 200),
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(served, host, expected):
    answer = get(served, "/api/runs", f"Host: {host}")
    assert status(answer) == expected
    assert (b'"runs"' in answer) == (expected == 200)


def test_a_request_without_a_host_is_refused(served):
    assert status(raw(served, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")) == 403
    assert status(raw(served, b"GET / HTTP/1.0\r\n\r\n")) == 403
    assert status(raw(served, b"GET /\r\n\r\n")) == 403


@pytest.mark.parametrize(
    ("site", "mode", "expected"),
    [
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ],
)
def test_other_pages_cannot_make_the_browser_fetch(served, site, mode, expected):
    answer = get(served, "/", f"Sec-Fetch-Site: {site}", f"Sec-Fetch-Mode: {mode}")
    assert status(answer) == expected


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"]
)
def test_only_reading_is_possible(served, method):
    answer = raw(served, f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert status(answer) == 405
    assert b"Allow: GET, HEAD" in answer


def test_a_method_that_there_is_not_and_noise_are_answered_without_markup(served):
    for data in (
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"<script>\r\n\r\n",
    ):
        answer = raw(served, data)
        assert b"<script" not in answer.partition(b"\r\n\r\n")[2] or b"text/plain" in answer
        assert b"html" not in answer.lower()


def test_head_has_the_same_head_and_no_body(served):
    for path in ("/", "/run/alpha/a1/case.json", "/api/runs", "/static/serve.css"):
        got, asked = served.ask(path), served.ask(path, method="HEAD")
        assert asked[2] == b""
        assert (got[0], got[1]["Content-Length"]) == (asked[0], asked[1]["Content-Length"])


def test_every_answer_has_its_policy(served):
    for path in ("/", "/none", "/run/alpha/a1/case.json", "/api/runs", "/static/serve.js", "/?x=1"):
        _, headers, _ = served.ask(path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"].strip() == "harness"
        assert "unsafe-inline" not in headers["Content-Security-Policy"]


def test_files_of_a_run_are_text_whatever_they_pretend_to_be(store):
    folder = add_run(store, "alpha", "a1")
    (folder / "evil.html").write_text("<script>alert(1)</script>")
    (folder / "evil.svg").write_text("<svg onload='alert(1)'/>")
    (folder / "logs").mkdir()
    (folder / "logs" / "report.html").write_text("<script>alert(1)</script>")
    with serving(store) as served:
        for path in ("evil.html", "evil.svg", "logs/report.html"):
            code, headers, _ = served.ask(f"/run/alpha/a1/{path}")
            assert (code, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
            assert headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")


def test_a_pipe_in_a_run_folder_blocks_no_reader(store):
    folder = add_run(store, "alpha", "a1")
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    os.mkfifo(folder / "x.log")
    with serving(store) as served:
        assert served.ask("/run/alpha/a1/x.log")[0] == 404
        assert "not a plain file" in served.page("/")


def test_a_long_address_and_huge_headers_are_refused(served):
    assert status(get(served, "/" + "a" * 9_000)) == 414
    assert status(get(served, "/" + "a" * 70_000)) == 414
    assert status(get(served, "/", "X: " + "a" * 70_000)) == 431


def test_connections_above_the_limit_are_refused_with_a_reason(store, monkeypatch):
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 2)
    for place, name in ((server_module, "IDLE_S"), (server_module._Handler, "timeout")):
        monkeypatch.setattr(place, name, 600.0)
    add_run(store, "alpha", "a1")
    with serving(store) as served:
        address = ("127.0.0.1", served.server.server_port)
        held = [socket.create_connection(address, timeout=CLIENT_S) for _ in range(2)]
        try:
            # each caller got an answer, but its connection stays open and still occupies a place
            for sock in held:
                sock.sendall(b"GET /static/serve.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 200")
            assert status(raw(served, b"", until_close=False)) == 503
        finally:
            for sock in held:
                sock.close()


def test_opening_below_follows_no_link_on_the_way(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "store" / "file").symlink_to(tmp_path / "real" / "file")
    for parts in (("link", "file"), ("file",), ("..", "real", "file"), (), ("link",), ("a/b",)):
        with pytest.raises(NotThere):
            open_below(tmp_path / "store", parts)
    number = open_below(tmp_path, ("real", "file"))
    assert os.read(number, 9) == b"x"
    os.close(number)


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_no_descriptor_is_left_open(served):
    paths = ("/", "/run/alpha/a1/case.json", "/zip/alpha/a1.zip", "/run/alpha/a1/none", "/report/")
    for path in paths:
        served.ask(path)
    before = descriptors()
    for _ in range(5):
        for path in paths:
            served.ask(path)
            served.ask(path, method="HEAD")
    wait_until(lambda: descriptors() <= before + 4)  # some threads may still be ending


def test_an_answer_that_tears_looks_torn(served, monkeypatch):
    def torn(*_):
        yield b"PK"
        raise OSError("the disk is gone")

    monkeypatch.setattr(routes, "archive", torn)
    answer = get(served, "/zip/alpha/a1.zip")
    assert status(answer) == 200
    assert not answer.endswith(b"0\r\n\r\n")
    with pytest.raises(http.client.IncompleteRead):
        served.ask("/zip/alpha/a1.zip")


def test_a_file_that_grows_or_shrinks_while_it_is_sent(served, monkeypatch):
    for length, body in ((2, [b"abc", b"def"]), (9, [b"abc"])):
        response = Response(content_type="text/plain", body=iter(body), length=length)
        monkeypatch.setattr(routes, "_static", lambda _, response=response: response)
        answer = get(served, "/static/x").partition(b"\r\n\r\n")[2]
        assert answer == b"".join(body)[:length]


def test_many_at_once_get_the_same_answer(served):
    bodies = []
    asking = [threading.Thread(target=lambda: bodies.append(served.ask("/")[2])) for _ in range(12)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(bodies) == 12
    assert len(set(bodies)) == 1


def test_bad_arguments_are_one_line(store, tmp_path, capsys, monkeypatch):
    store.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(store), "--port", str(port)]) == 254
        assert f"--port {port} is in use on 127.0.0.1" in capsys.readouterr().err
    for arguments, text in (
        ([str(tmp_path / "none")], "is not a folder"),
        ([str(store), "--port", "70000"], "--port is 70000"),
        ([str(store), "--port", "x"], "--port is 'x'; it must be a whole number"),
        ([str(store), "--bind", "nonsense"], "--bind is 'nonsense'"),
        ([str(store), "--bind", "203.0.113.7", "--port", "0"], "cannot listen on 203.0.113.7"),
    ):
        assert main(["serve", *arguments]) == 254
        output = capsys.readouterr()
        assert text in output.err
        assert "Traceback" not in output.err
        assert output.out == ""
    refused = OSError(errno.EIO, "broken")

    def fail(*_):
        raise refused

    monkeypatch.setattr(server_module, "StoreServer", fail)
    assert main(["serve", str(store)]) == 255


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_cleanly(store, number):
    add_run(store, "alpha", "a1")
    code = "import sys; from harness.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", str(store), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        url = process.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", url)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert f"1 run in '{store}'" in err
    assert err.splitlines()[-1] == "harness: stopped serving"
    assert "Traceback" not in err
