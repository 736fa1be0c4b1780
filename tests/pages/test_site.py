"""The pages that all nodes serve, and those of tablet servers."""

import json
import re

import pytest

from harness.env import PageRequest
from targets.kudu.flags import Flags, parse_flags
from targets.kudu.pages import LIST_MAX, tserver_data, tserver_views
from targets.kudu.pages.metrics import Family, master_metrics, metrics_page, tserver_metrics
from targets.kudu.pages.parts import tag
from targets.kudu.pages.shared import flags_page, health_page
from targets.kudu.pages.site import Identity, Page, Plain, Route, Site, missing
from tests.pages.samples import (
    HOSTILE,
    START_NS,
    UUIDS,
    master_dump,
    page_of,
    raft,
    read,
    table,
    tserver,
)

SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="(\\.|[^"\\\n])*",?)+\})? -?[0-9.e+]+')
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"


async def thing(query):
    if "id" not in query or query["id"] != "1":
        return missing("table", query)
    return Page({"it": query["id"]}, tag("p", HOSTILE), thing=HOSTILE)


async def text(_query):
    return Plain({"it": "text"}, "plain\n")


def site():
    identity = Identity("m1", "master", "LEADER", START_NS)
    return Site(
        lambda: identity,
        [Route("/", "Home", "home", text, "Home"), Route("/table", "Table", "one table", thing)],
    )


async def ask(path, *, accepts_json=False, **query):
    return await site().answer(PageRequest(path, query, accepts_json))


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("/table", {"id": "1"}, (200, HTML)),
        ("/table/", {"id": "1"}, (200, HTML)),
        ("/table.json", {"id": "1"}, (200, JSON)),
        ("/table", {"id": "1", "format": "json"}, (200, JSON)),
        ("/table", {"id": "1", "accepts_json": True}, (200, JSON)),
        ("/table", {"id": "2"}, (404, HTML)),
        ("/table", {}, (400, HTML)),
        ("/table.json", {"id": "2"}, (404, JSON)),
        ("/", {}, (200, TEXT)),
        ("/.json", {}, (200, JSON)),
        ("/nothing", {}, (404, HTML)),
        ("/nothing.json", {}, (404, JSON)),
        ("", {}, (404, HTML)),
    ],
)
async def test_forms(path, options, expected):
    response = await ask(path, **options)
    assert (response.status, response.content_type) == expected
    if expected[1] == JSON:
        json.loads(response.body)


async def test_a_document_escapes_everything_and_links_to_its_own_json():
    said, tags, links = read((await ask("/table", id="1")).body)
    assert said.count(HOSTILE) == 3  # in the title, the heading and the body
    assert "script" not in tags
    assert "/table?id=1&format=json" in links
    said, tags, _ = read((await ask("/<script>")).body)
    assert "There is no page /<script>" in said
    assert "script" not in tags
    said, tags, _ = read((await ask("/table", id="<script>")).body)
    assert "no table has the id <script>" in said
    assert "script" not in tags


def test_flags_that_differ_come_first():
    page = flags_page(parse_flags("heartbeat_interval_ms=100"))
    flags = page.data["flags"]
    assert [flag["name"] for flag in flags if not flag["is_default"]] == ["heartbeat_interval_ms"]
    assert flags[0] == {
        "name": "heartbeat_interval_ms",
        "value": 100,
        "default": 1000,
        "is_default": False,
        "range": [10, 3000],
    }
    assert len(flags) == len(Flags.__struct_fields__)
    assert "heartbeat_interval_ms 100 1000 10 to 3000 changed" in read(page.body)[0]


def test_health():
    assert health_page({"status": "ok"})[1:] == ("OK\n", TEXT, 200)
    assert health_page({"status": "starting"})[1:] == ("starting\n", TEXT, 503)


# --- metrics -----------------------------------------------------------------------------------


def test_metrics_are_in_prometheus_format():
    dump = master_dump(tables=[table(1), table(2, state="ALTERING")], tservers=[tserver(1)])
    page = metrics_page(master_metrics(dump, START_NS))
    lines = page.text.splitlines()
    assert page.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert 'kudu_rpc_calls_total{method="MasterService.CreateTable"} 3' in lines
    assert 'kudu_raft_applied_index{group="sys.catalog"} 8' in lines
    assert 'kudu_raft_elections_won_total{group="sys.catalog"} 1' in lines
    assert 'kudu_tables{state="ALTERING"} 1' in lines
    assert f'kudu_tserver_live_tablets{{uuid="{UUIDS[0]}",address="t1:7050"}} 5' in lines
    announced = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(announced) == len(set(announced))
    for line in lines:
        if not line.startswith("#"):
            assert SAMPLE.fullmatch(line), line
            assert re.split(r"[ {]", line)[0] in announced
    assert set(page.data) == set(announced)
    assert "kudu_raft_term" not in metrics_page(master_metrics(master_dump(raft={}), 0)).text


def test_label_values_are_escaped():
    family = Family("x", "gauge", "what", [({"a": 'b"\\\n'}, 1)])
    assert metrics_page([family]).text.splitlines()[2] == 'x{a="b\\"\\\\\\n"} 1'


# --- tablet servers ----------------------------------------------------------------------------


def replica(number, *, data_state="READY", role="FOLLOWER"):
    is_ready = data_state == "READY"
    peers = [
        {"uuid": UUIDS[i], "address": f"t{i + 1}:7050", "member_type": "VOTER"} for i in (0, 1)
    ]
    return {
        "tablet_id": f"{number:032x}",
        "table_id": f"{number % 2:032x}",
        "table_name": HOSTILE,
        "state": "RUNNING" if is_ready else "STOPPED",
        "data_state": data_state,
        "schema_version": 2,
        "columns": [[0, "key"], [1, HOSTILE]],
        "partition": {"start": "", "end": "00ff"},
        "committed_config": {"opid_index": -1, "peers": peers} if is_ready else None,
        "rows": {"live_rows": 1234, "counters": {"row bytes in memory": 99}} if is_ready else None,
        "raft": raft(role=role, leader=1) if is_ready else None,
    }


def tserver_dump(*tablets, serving=True):
    calls = {"ConsensusService.UpdateConsensus": 4}
    return {"uuid": UUIDS[0], "tablets": list(tablets), "calls": calls, "serving": serving}


def test_replicas_and_tombstones():
    dump = tserver_dump(replica(2, role="LEADER"), replica(1, data_state="TOMBSTONED"))
    data = tserver_data.tablets(dump)
    assert [t["role"] for t in data["tablets"]] == [None, "LEADER"]
    text, tags, links = read(tserver_views.tablets(data))
    assert "TOMBSTONED" in text
    assert "script" not in tags
    assert f"/tablet?id={2:032x}" in links
    overview = tserver_data.overview(dump, ("m1:7051",), "t1:7050", START_NS, page_of)
    assert (overview["tablets"], overview["led"]) == ({"RUNNING": 1, "STOPPED": 1}, 1)
    _, _, links = read(tserver_views.overview(overview, ""))
    assert "http://m1:8051" in links


def test_one_replica():
    dump = tserver_dump(replica(2, role="LEADER"), replica(1, data_state="TOMBSTONED"))
    data = tserver_data.tablet(dump, f"{2:032x}", page_of)
    assert [(p["leader"], p["here"]) for p in data["peers"]] == [(False, True), (True, False)]
    assert [p["health"] for p in data["peers"]] == ["FAILED", None]
    text, tags, links = read(tserver_views.tablet(data))
    assert "t1 VOTER FAILED this one t1:7050" in text
    assert "t2 LEADER t2:7050" in text
    assert "Live rows 1,234 Row bytes in memory 99" in text
    assert "script" not in tags
    assert f"http://t2:8050/tablet?id={2:032x}" in links
    tombstone = tserver_data.tablet(dump, f"{1:032x}", page_of)
    assert "Consensus" not in read(tserver_views.tablet(tombstone))[0]
    assert tserver_data.tablet(dump, f"{3:032x}", page_of) is None


def test_health_of_a_tablet_server():
    assert tserver_data.health(tserver_dump())["status"] == "ok"
    assert tserver_data.health(tserver_dump(serving=False))["status"] == "starting"


def test_series_of_replicas_are_bounded():
    dump = tserver_dump(*(replica(i) for i in range(LIST_MAX + 3)))
    text = metrics_page(tserver_metrics(dump, START_NS)).text
    assert text.count("kudu_raft_term{") == LIST_MAX
    assert "kudu_tablet_replicas_without_series 3" in text.splitlines()
    assert text.count("kudu_tablet_row_bytes_in_memory{") == LIST_MAX
    assert f'kudu_tablet_replicas{{state="RUNNING"}} {LIST_MAX + 3}' in text.splitlines()
