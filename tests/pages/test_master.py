"""The pages of a master, as functions of its dump."""

import json
from types import SimpleNamespace

import pytest

from harness.env import PageRequest
from targets.kudu import messages as m
from targets.kudu.flags import Flags
from targets.kudu.pages import LIST_MAX, master_data, master_views
from targets.kudu.pages.master import MasterPages
from targets.kudu.pages.master_data import MasterAnswer
from targets.kudu.rpc import RpcTimeoutError
from tests.pages.samples import (
    HOSTILE,
    START_NS,
    UUIDS,
    config,
    master_dump,
    page_of,
    raft,
    read,
    table,
    tablet,
    tserver,
)

V, N = "VOTER", "NON_VOTER"


def answers(count):
    return {UUIDS[i]: MasterAnswer(UUIDS[i], "FOLLOWER", START_NS) for i in range(count)}


def masters_of(configuration, said):
    return master_data.masters(configuration, said, "c" * 32, page_of)


# --- masters -----------------------------------------------------------------------------------


def test_masters_are_those_of_the_configuration_by_address():
    data = masters_of(config(V, V, V), answers(3))
    assert [m["address"] for m in data["masters"]] == ["m1:7051", "m2:7051", "m3:7051"]
    assert data["masters"][0] == {
        "uuid": UUIDS[0],
        "address": "m1:7051",
        "page": "http://m1:8051",
        "cluster_id": "c" * 32,
        "role": "FOLLOWER",
        "member_type": V,
        "start_time": "2023-11-14T22:13:20Z",
        "start_ns": START_NS,
    }
    assert (data["errors"], data["warning"], data["config_index"]) == ([], None, 7)
    text, _, links = read(master_views.masters(data))
    assert "Live Masters 3" in text
    assert "Registration m1 " in text  # the master's name is in the first column
    assert "Errors" not in text
    assert links[0] == "http://m1:8051"


@pytest.mark.parametrize(
    ("types", "warns"),
    [((V,), False), ((V, V), True), ((V, V, V, V), True), ((V, V, V, N), False), ((), False)],
)
def test_an_even_number_of_voters_is_warned_of(types, warns):
    data = masters_of(config(*types), answers(9))
    assert (data["warning"] is not None) == warns
    assert ("even" in read(master_views.masters(data))[0]) == warns


def test_who_does_not_answer_or_is_somebody_else_is_an_error_and_not_live():
    answer = answers(4) | {
        UUIDS[1]: MasterAnswer(error="unreachable: no route"),
        UUIDS[2]: MasterAnswer(UUIDS[8], "FOLLOWER", START_NS),
    }
    del answer[UUIDS[3]]
    data = masters_of(config(V, V, V, V), answer)
    assert [m["uuid"] for m in data["masters"]] == [UUIDS[0]]
    errors = {e["address"]: e["error"] for e in data["errors"]}
    assert errors["m2:7051"] == "unreachable: no route"
    assert "mismatch" in errors["m3:7051"]
    assert UUIDS[8] in errors["m3:7051"]
    assert "m4:7051" in errors
    assert "Errors 3" in read(master_views.masters(data))[0]


def test_a_server_with_another_list_is_flagged():
    both = ("m2:7051", "m1:7051")
    said = {
        UUIDS[0]: MasterAnswer(UUIDS[0], "LEADER", START_NS, told=both),
        UUIDS[1]: MasterAnswer(UUIDS[1], "FOLLOWER", START_NS, told=both[:1]),
    }
    data = masters_of(config(V, V), said)
    assert data["told_otherwise"] == [{"address": "m2:7051", "told": ["m2:7051"]}]
    text = read(master_views.masters(data))[0]
    assert "m2:7051 was started with another list" in text
    assert "m1:7051 was started" not in text


def test_a_starting_master_knows_no_server():
    data = masters_of(None, {})
    assert (data["masters"], data["warning"]) == ([], None)
    assert "still starting" in read(master_views.masters(data))[0]


# --- tables ------------------------------------------------------------------------------------


def test_tables_are_live_ones_by_name_with_their_tablets():
    dump = master_dump(
        tables=[table(1, name="b"), table(2, name="a"), table(3, state="REMOVED")],
        tablets=[tablet(1, 1), tablet(2, 1, state="CREATING"), tablet(3, 3)],
    )
    data = master_data.tables(dump)
    rows = [(t["name"], t["tablets_running"], t["tablets"]) for t in data["tables"]]
    assert rows == [("a", 0, 0), ("b", 1, 2)]
    assert data["deleted"] == 1
    text, _, links = read(master_views.tables(data))
    assert "1 of 2" in text
    assert "Rows of 1 deleted table are kept" in text
    assert "is not the leader" in text
    assert links[1] == f"/table?id={1:032x}"


def test_long_lists_are_cut_and_say_so():
    dump = master_dump(tables=[table(i, name=f"{i:05}") for i in range(LIST_MAX + 5)])
    data = master_data.tables(dump)
    assert (data["total"], data["shown"], len(data["tables"])) == (LIST_MAX + 5, LIST_MAX, LIST_MAX)
    text, tags, _ = read(master_views.tables(data))
    assert f"The first {LIST_MAX} of {LIST_MAX + 5} are shown" in text
    assert tags.count("tr") == LIST_MAX + 1
    entities = master_data.entities(dump | {"truncated": {"tables": 7, "tablets": 0}})
    assert entities["truncated"] == {"tables": 12, "tablets": 0, "tservers": 0}


def test_a_table_with_its_replicas():
    dump = master_dump(
        tables=[table(1, name=HOSTILE, comment=HOSTILE)],
        tablets=[
            tablet(2, 1, state="DELETED"),
            tablet(3, 1, leader=1, start="01"),
            tablet(4, 1, state="CREATING"),
        ],
        tservers=[tserver(1)],
    )
    data = master_data.table(dump, f"{1:032x}", page_of)
    assert [t["state"] for t in data["tablets"]] == ["CREATING", "RUNNING", "DELETED"]
    text, tags, links = read(master_views.table_page(data))
    assert text.count(HOSTILE) == 2
    assert "script" not in tags
    assert "t1 t2 leads (not heard of)" in text
    assert "not placed yet" in text
    assert f"http://t2:8050/tablet?id={3:032x}" in links
    assert master_data.table(dump, f"{2:032x}", page_of) is None
    assert master_data.table(dump, None, page_of) is None


# --- the other pages ---------------------------------------------------------------------------


def test_tablet_servers_fall_silent():
    dump = master_dump(tservers=[tserver(2, silent_ms=60_001), tserver(1, silent_ms=60_000)])
    data = master_data.tservers(dump, 60_000, page_of)
    states = [(s["address"], s["state"]) for s in data["tablet_servers"]]
    assert states == [("t1:7050", "ALIVE"), ("t2:7050", "SILENT")]
    text = read(master_views.tservers(data))[0]
    assert "1 of 2 are alive" in text
    assert text.count("MAINTENANCE") == 1


def test_the_overview_counts_live_servers():
    dump = master_dump(
        tables=[table(1), table(3, state="REMOVED")],
        tablets=[tablet(1, 1), tablet(2, 1, state="CREATING"), tablet(3, 3, state="DELETED")],
        tservers=[tserver(1), tserver(2, silent_ms=60_001)],
    )
    data = master_data.overview(dump, 60_000, page_of)
    assert data["tables"] == 1
    assert data["tablets"] == {"CREATING": 1, "RUNNING": 1}
    assert (data["tablet_servers_alive"], data["tablet_servers"]) == (1, 2)
    assert data["leader"]["page"] == "http://m1:8051"
    text, _, _ = read(master_views.overview(data, ""))
    assert "1 of 2 tablets running" in text


def test_a_master_without_a_replica_has_an_overview_and_is_not_healthy():
    dump = master_dump(role="NOT_INITIALIZED", raft={}, term=0)
    data = master_data.overview(dump, 60_000, page_of)
    assert (data["masters"], data["leader"]) == (0, None)
    assert "none known" in read(master_views.overview(data, ""))[0]
    assert master_data.health(dump)["status"] == "starting"
    assert master_data.health(master_dump(raft=raft()))["status"] == "ok"


# --- the origin of the list of masters -----------------------------------------------------------


async def test_masters_come_from_the_committed_configuration_and_not_from_the_active_one():
    committed, active = config(V, V, opid_index=3), config(V, V, V, V, opid_index=9)
    replica = SimpleNamespace(committed_config=committed, config=active, role="LEADER")
    asked = []

    class Rpc:
        async def call(self, address, *_arguments, timeout_s):
            asked.append((address, timeout_s))
            raise RpcTimeoutError("no answer", sent=True)

    class Service:
        def get_master_registration(self, _request, _peer):
            meta = m.Meta(UUIDS[0], 4)
            return m.GetMasterRegistrationResponse(meta, role="LEADER", start_ns=START_NS)

        def status(self):
            return master_dump()

    net = SimpleNamespace(resolve=lambda address: address)
    env = SimpleNamespace(
        name="m1", clock=None, net=net, page_url=lambda address: f"http://{address}"
    )
    node = SimpleNamespace(env=env, flags=Flags(), uuid=UUIDS[0], rpc=Rpc())
    pages = MasterPages(node, SimpleNamespace(replica=replica), Service())
    response = await pages._site.answer(PageRequest("/masters", {}, accepts_json=True))
    data = json.loads(response.body)
    assert [master["address"] for master in data["masters"]] == ["m1:7051"]
    assert [error["address"] for error in data["errors"]] == ["m2:7051"]
    assert (data["config_index"], data["voters"]) == (3, 2)
    assert "even" in data["warning"]
    assert asked == [("m2:7051", 1.5)]
