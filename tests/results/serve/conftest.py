"""A real server on the loopback interface, in a thread."""

import contextlib
import http.client
import json
import threading

import pytest

from results.serve import runs
from results.serve.library import Library
from results.serve.routes import Application
from results.serve.server import StoreServer
from tests.results.serve.stores import make_store, small_store
from tests.support.run_folders import ingested

CLIENT_S = 120.0
"""A time limit that ends hangs; on a busy machine, answers may be slow."""


class Served:
    def __init__(self, store, server):
        self.store, self.server, self.url = store, server, server.url.rstrip("/")

    def ask(self, path, *, method="GET", headers=None):
        """Send one request; return (status, headers, body)."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.server_port, timeout=CLIENT_S
        )
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def page(self, path):
        status, _, body = self.ask(path)
        assert status == 200, body
        return body.decode()

    def api(self, path):
        return json.loads(self.page(f"/api/{path}"))


@contextlib.contextmanager
def serving(place, **options):
    with contextlib.closing(Library(str(place), **options)) as library:
        server = StoreServer("127.0.0.1", 0, Application(library))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Served(place, server)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(name="eager")
def eager_fixture(monkeypatch):
    """Make every page look for new runs before it answers."""
    monkeypatch.setattr(runs, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(runs, "LOOK_REST", 0.0)
    monkeypatch.setattr(runs, "FAILED_REST_S", 0.0)
    monkeypatch.setattr(runs, "WAIT_S", CLIENT_S)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serve a small store with good, broken and hostile runs."""
    with serving(small_store(tmp_path_factory.mktemp("serve") / "store")) as made:
        yield made


@pytest.fixture(scope="module")
def lake_served(tmp_path_factory):
    root = tmp_path_factory.mktemp("lake")
    with serving(ingested(make_store(root / "store"), root / "lake")) as made:
        yield made
