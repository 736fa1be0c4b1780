"""A real server on the loopback device, in a thread."""

import contextlib
import http.client
import json
import threading

import pytest

from results.serve import group_pages
from results.serve.routes import Application
from results.serve.server import StoreServer
from results.serve.store_library import StoreLibrary
from tests.results.serve.stores import small_store

CLIENT_S = 120.0
"""Ends a hang: on a crowded machine an answer takes its time."""


class Served:
    """A running server, and a way to ask it."""

    def __init__(self, store, server):
        self.store, self.server, self.url = store, server, server.url.rstrip("/")

    def ask(self, path, *, method="GET", headers=None):
        """(status, headers, body) of one request."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.server_port, timeout=CLIENT_S
        )
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def page(self, path):
        """The text of a page that must be there."""
        status, _, body = self.ask(path)
        assert status == 200, body
        return body.decode()

    def api(self, path):
        """The data behind an address of the API that must be there."""
        return json.loads(self.page(f"/api/{path}"))


@contextlib.contextmanager
def serving(store, library=None):
    """A store served, or what another library has."""
    server = StoreServer("127.0.0.1", 0, Application(library or StoreLibrary(store)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Served(store, server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Pages read all runs they show, also on a crowded machine: the limit has its own test."""
    monkeypatch.setattr(group_pages, "MEASURE_S", CLIENT_S)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A small store with good, broken and hostile runs, served."""
    with serving(small_store(tmp_path_factory.mktemp("serve") / "store")) as made:
        yield made
