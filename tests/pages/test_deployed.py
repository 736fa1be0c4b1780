"""Pages of a whole cluster, in the simulation, in processes, and in a real browser."""

import asyncio
import functools
import json
import queue
import threading

import pytest

from harness.cluster import Link
from harness.env import Address
from tests.async_tests import on
from tests.faults.door import door
from tests.kudu.deploy import Deployed, deploy
from tests.pages.samples import HOSTILE, get, read
from tests.support.browser import BROWSER_MARKS

MASTERS = ("m1", "m2", "m3")


async def every_page(cluster: Deployed):
    env = cluster.env
    await cluster.ok(cluster.new_client(), "create", name=HOSTILE)
    await cluster.until_converged()
    tables = {node: await get(env, node, "/tables.json") for node in MASTERS}
    assert [t["name"] for t in tables["m1"]["tables"]] == [HOSTILE]
    assert len({json.dumps(each["tables"]) for each in tables.values()}) == 1
    table_id = tables["m1"]["tables"][0]["id"]
    table = await get(env, "m2", f"/table?id={table_id}&format=json")
    tablet_id = table["tablets"][0]["id"]
    assert sum(replica["leader"] for replica in table["tablets"][0]["replicas"]) == 1

    seen = [await get(env, node, "/masters.json") for node in MASTERS]
    assert seen[0] == seen[1] == seen[2]
    assert sorted(m["role"] for m in seen[0]["masters"]) == ["FOLLOWER", "FOLLOWER", "LEADER"]
    assert all(m["start_ns"] > 0 for m in seen[0]["masters"])

    servers = await get(env, "m3", "/tablet-servers.json")
    assert [s["state"] for s in servers["tablet_servers"]] == ["ALIVE"] * 3
    entities = await get(env, "m3", "/dump-entities")
    assert entities["tables"][0]["name"] == HOSTILE
    assert (await get(env, "m1", "/healthz")) == b"OK\n"
    assert b'kudu_rpc_calls_total{method="MasterService.CreateTable"}' in (
        b"".join([await get(env, node, "/metrics") for node in MASTERS])
    )
    master_pages = ["/", "/masters", "/tables", f"/table?id={table_id}", "/tablet-servers", "/varz"]
    tserver_pages = ["/", "/tablets", f"/tablet?id={tablet_id}", "/varz"]
    paths = [("m2", path) for path in master_pages] + [("t1", path) for path in tserver_pages]
    for node, path in paths:
        _, tags, _ = read(await get(env, node, path))
        assert "h1" in tags, path
        assert "script" not in tags, path
    assert f'group="{tablet_id}"'.encode() in await get(env, "t1", "/metrics")
    return paths


test_every_page_in_simulation = on(deploy)(every_page)


@pytest.mark.process
@pytest.mark.slow
def test_every_page_in_processes_over_http():
    async def body(cluster: Deployed):
        await every_page(cluster)
        data = await get(cluster.env, "m1", "/masters.json")
        for master in data["masters"]:  # each link leads to a node that answers
            host, port = master["page"].removeprefix("http://").rsplit(":", 1)
            name = master["address"].partition(":")[0]
            assert (host, int(port)) == cluster.env.endpoint(Address(name, 8051))

    deploy(body, environment="process")


@on(deploy)
async def test_a_dead_and_a_silent_master_are_errors_within_the_limit(cluster):
    world = cluster.session.cluster
    leader = await cluster.leader()
    dead, silent = (node for node in MASTERS if node != leader)
    await world.kill(dead)
    await world.pause(silent, lease_s=60)
    before_ns = cluster.env.clock.monotonic_ns()
    data = await get(cluster.env, leader, "/masters.json")
    assert cluster.env.clock.monotonic_ns() - before_ns < 2_000_000_000
    assert [m["address"] for m in data["masters"]] == [f"{leader}:7051"]
    assert sorted(e["address"] for e in data["errors"]) == sorted(
        [f"{dead}:7051", f"{silent}:7051"]
    )
    await world.resume(silent)
    await world.start(dead)
    await cluster.until_ready()
    assert (await get(cluster.env, leader, "/masters.json"))["errors"] == []


@on(deploy)
async def test_a_cut_off_follower_shows_its_pages(cluster):
    await cluster.ok(cluster.new_client(), "create", name="t")
    await cluster.until_converged()
    leader = await cluster.leader()
    alone, other = (node for node in MASTERS if node != leader)
    links = Link.between([alone], [leader, other])
    await door(cluster).cut(links)
    await asyncio.sleep(1)
    tables = await get(cluster.env, alone, "/tables.json")
    assert ([t["name"] for t in tables["tables"]], tables["leads"]) == (["t"], False)
    data = await get(cluster.env, alone, "/masters.json")
    assert [m["address"] for m in data["masters"]] == [f"{alone}:7051"]
    assert len(data["errors"]) == 2


def looked_at(looks: int) -> str:
    """Run a case while pages are requested `looks` times; return the digest of the run."""

    async def body(cluster: Deployed) -> str:
        for _ in range(looks):
            await get(cluster.env, "m1", "/masters")
            await get(cluster.env, "t1", "/")
        await asyncio.sleep(3)
        return cluster.session.trace_digest()

    return deploy(body)


def test_looking_is_part_of_a_run_and_replays():
    assert looked_at(2) == looked_at(2) != looked_at(0)


# --- in a browser --------------------------------------------------------------------------------


def marked(*marks):
    return lambda test: functools.reduce(lambda done, mark: mark(done), marks, test)


class Shown(threading.Thread):
    """A cluster of processes that runs while a browser displays its pages."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found: queue.Queue[list[str] | Exception] = queue.Queue()
        self.over = threading.Event()

    def run(self) -> None:
        async def body(cluster: Deployed) -> None:
            paths = await every_page(cluster)
            urls = []
            for node, path in paths:
                port = 8051 if node.startswith("m") else 8050
                urls.append(
                    "http://{}:{}".format(*cluster.env.endpoint(Address(node, port))) + path
                )
            self.found.put(urls)
            await asyncio.to_thread(self.over.wait)

        try:
            deploy(body, environment="process")
        except Exception as error:  # noqa: BLE001 - told by the test
            self.found.put(error)


@marked(*BROWSER_MARKS, pytest.mark.process, pytest.mark.slow)
def test_pages_in_a_browser_light_and_dark(browser_page):
    shown = Shown()
    shown.start()
    urls = shown.found.get(timeout=300)
    try:
        assert not isinstance(urls, Exception), urls
        papers = set()
        for scheme in ("light", "dark"):
            browser_page.emulate_media(color_scheme=scheme)
            for url in urls:
                browser_page.open(url)
                assert browser_page.locator("h1").inner_text()
                body = browser_page.locator("body")
                papers.add((scheme, body.evaluate("e => getComputedStyle(e).backgroundColor")))
                wide = "document.documentElement.scrollWidth <= innerWidth"
                assert browser_page.evaluate(wide), url
                cut_off = "es => es.filter(e => e.scrollWidth > e.clientWidth).length"
                assert browser_page.locator(".scroll").evaluate_all(cut_off) == 0, url
        assert len(papers) == 2, papers
        # Open one page of each other node by its link.
        browser_page.open(next(url for url in urls if url.endswith("/masters")))
        browser_page.follow(browser_page.get_by_role("link", name="m3").last)
        assert browser_page.locator(".brand").inner_text() == "kudu m3"
    finally:
        shown.over.set()
        shown.join(timeout=60)
