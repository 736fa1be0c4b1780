"""Other programs interfere with a run's link proxy, and end its faults early."""

from http.client import HTTPConnection
from pathlib import Path

import pytest

from harness.cluster import CLIENT, Link, LinkQuality
from harness.environments import procfs
from harness.environments.toxiproxy.api import TOKEN_VARIABLE
from tests.faults.door import door
from tests.process.conftest import in_turn, process_of
from tests.support.waiting import LIMIT_S
from tests.toxiproxy.conftest import serving

pytestmark = pytest.mark.process

LINK = Link(CLIENT, "s")


@pytest.fixture
def given():
    """Start a Toxiproxy as if a user had: other programs can reach it."""
    with serving("ours") as server:
        yield server


def told(driver):
    return [event for event in driver.events if event.kind == "infrastructure"]


def only_toxic(server):
    """Return the paths of the only toxic and of its proxy."""
    proxies = server.request("GET", "/proxies")[1]
    [(proxy, toxic)] = [(name, t) for name, each in proxies.items() for t in each["toxics"]]
    return f"/proxies/{proxy}", f"/proxies/{proxy}/toxics/{toxic['name']}"


def test_a_fault_ended_by_others_counts_as_undone(run, sleeper, given):
    def reset():
        assert given.request("POST", "/reset")[0] == 204

    def removed():
        assert given.request("DELETE", only_toxic(given)[1])[0] == 204

    def changed():
        change = {"attributes": {"latency": 1}}
        assert given.request("PATCH", only_toxic(given)[1], change)[0] == 200

    def spared():
        assert given.request("PATCH", only_toxic(given)[1], {"toxicity": 0.5})[0] == 200

    def nothing():
        pass

    async def body(driver):
        for act in (nothing, reset, removed, changed, spared):
            driver.events.clear()
            fault = await door(driver).shape([LINK], LinkQuality(delay_ms=900))
            act()
            bite = await door(driver).heal(fault)
            assert bite.undone == (act is not nothing), act
            assert bool(told(driver)) == bite.undone
            assert (await door(driver).heal(fault)).undone == bite.undone

    run(body, sleeper, link_proxy=given.url)


def test_interference_with_the_proxies_is_reported_until_it_ends(run, sleeper, given):
    async def a_fault_is_ended_while_it_is_on(driver):
        fault = await door(driver).cut([LINK])
        assert given.request("POST", "/reset")[0] == 204
        await driver.wait_event("infrastructure", "")
        assert (await door(driver).heal(fault)).undone
        assert len(told(driver)) == 1

    async def a_proxy_is_changed(driver):
        [proxy] = given.request("GET", "/proxies")[1]
        path = f"/proxies/{proxy}"
        upstream = given.request("GET", path)[1]["upstream"]
        for change, back in (
            (("PATCH", path, {"enabled": False}), ("PATCH", path, {"enabled": True})),
            (("PATCH", path, {"upstream": "127.0.0.1:9"}), ("PATCH", path, {"upstream": upstream})),
            (
                ("POST", f"{path}/toxics", {"name": "t", "type": "timeout"}),
                ("DELETE", f"{path}/toxics/t"),
            ),
        ):
            driver.events.clear()
            assert given.request(*change)[0] == 200
            assert (await driver.wait_event("infrastructure", "")).data["lasts"]
            assert given.request(*back)[0] < 300
            assert (await driver.wait_event("infrastructure", "", 2)).data["over"]
        driver.events.clear()
        assert given.request("DELETE", path)[0] == 204
        assert (await driver.wait_event("infrastructure", "")).data["lasts"]

    run(in_turn(a_fault_is_ended_while_it_is_on, a_proxy_is_changed), sleeper, link_proxy=given.url)


def listening_port(pid: int) -> int:
    """Find the port of the proxy's API, by its refusal of unauthorized requests."""
    folder = Path(f"/proc/{pid}")
    sockets = {str(each.readlink()) for each in (folder / "fd").iterdir()}
    for line in (folder / "net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        if row[3] == "0A" and f"socket:[{row[9]}]" in sockets:
            port = int(row[1].split(":")[1], 16)
            if ask(port, "GET", "/version") == 401:
                return port
    raise AssertionError("the link proxy has no port with an API")


def ask(port: int, method: str, path: str, **headers: str) -> int | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def test_a_stranger_cannot_end_a_fault_of_our_own_proxy(run, sleeper):
    async def body(driver):
        fault = await door(driver).cut([LINK])

        pid = (await process_of("link-proxy")).pid
        port = listening_port(pid)
        assert ask(port, "POST", "/reset") == 401
        assert ask(port, "POST", "/reset", Host="evil.example") == 403
        # only the same user can read this variable
        assert procfs.environment_of(pid)[TOKEN_VARIABLE]
        assert not (await door(driver).heal(fault)).undone

    run(body, sleeper)
