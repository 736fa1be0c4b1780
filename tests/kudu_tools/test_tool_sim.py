"""The output of `harness kudu` shows the real state of a simulated cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import __version__
from harness.errors import UsageError
from harness.plugins import Convergence, Said
from targets.kudu import messages as m
from targets.kudu.rpc import RpcClient
from targets.kudu.tools.admin import Admin
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy

ROWS = [["insert", f"k{number}", {"a": f"v{number}"}] for number in range(5)]


async def _kudu(cluster: Deployed, line: str) -> Any:
    return await cluster.system.tool(line.split())


async def _with_table(cluster) -> Any:
    client = cluster.new_client()
    await cluster.ok(client, "create", name="metrics", nonce="made")
    await cluster.until_done(client, "is-create-done", "metrics")
    await cluster.until_converged()
    return client


async def _json(cluster: Deployed, line: str) -> Any:
    output = await _kudu(cluster, line)
    assert output.exit_code == 0, output
    return json.loads(output.text)


@on(deploy)
async def test_a_healthy_cluster_passes_the_check(cluster):
    await _with_table(cluster)
    output = await _kudu(cluster, "ksck --checksum")
    assert (output.exit_code, output.text.splitlines()[-1]) == (0, "OK"), output.text
    found = await _json(cluster, "ksck --format json_compact --checksum")
    assert found["errors"] == []
    (version,) = found["version_summaries"]
    assert (version["version"], len(version["servers"])) == (__version__, 6)
    (counts,) = found["count_summaries"]
    assert counts == {"masters": 3, "tservers": 3, "tables": 1, "tablets": 2, "replicas": 6}
    (sums,) = found["checksum_results"]["tables"].values()
    assert all(len({r["checksum"] for r in t["replica_checksums"]}) == 1 for t in sums)
    assert {t["health"] for t in found["tablet_summaries"]} == {"HEALTHY"}
    leads = [[r["is_leader"] for r in t["replica_infos"]] for t in found["tablet_summaries"]]
    assert [sum(each) for each in leads] == [1, 1]


@pytest.mark.parametrize("victim", ["m1", "t1"])
@on(deploy)
async def test_a_dead_server_fails_it(cluster, victim):
    await _with_table(cluster)
    await cluster.session.cluster.kill(victim)
    output = await _kudu(cluster, "ksck --format json_pretty")
    assert output.exit_code == 1
    content = json.loads(output.text)
    servers = {s["address"]: s["health"] for s in content["master_summaries"]}
    servers |= {s["address"]: s["health"] for s in content["tserver_summaries"]}
    assert [a for a, health in servers.items() if health != "HEALTHY"] == [
        f"{victim}:{7051 if victim == 'm1' else 7050}"
    ]
    healths = {t["health"] for t in content["tablet_summaries"]}
    assert ("UNDER_REPLICATED" in healths) == (victim == "t1")


@on(deploy)
async def test_the_tool_waits_until_a_master_leads(cluster):
    await _with_table(cluster)
    masters = await _json(cluster, "master list --format json")
    (leader,) = [row["rpc-addresses"] for row in masters if row["role"] == "LEADER"]
    await cluster.session.cluster.kill(leader.partition(":")[0])
    assert await _kudu(cluster, "table alter metrics --add-column unit:string") == Said("")
    assert "unit STRING NULLABLE" in (await _kudu(cluster, "table describe metrics")).text


@on(deploy)
async def test_lists(cluster):
    client = await _with_table(cluster)
    masters = await _json(cluster, "master list --format json")
    assert [row["rpc-addresses"] for row in masters] == ["m1:7051", "m2:7051", "m3:7051"]
    assert sorted(row["role"] for row in masters) == ["FOLLOWER", "FOLLOWER", "LEADER"]
    tservers = await _json(cluster, "tserver list --format json")
    assert len({row["uuid"] for row in tservers}) == 3
    tables = await _json(cluster, "table list --tablets --format json")
    (table,) = tables["tables"]
    assert table["name"] == "metrics"
    assert [len(tablet["replicas"]) for tablet in table["tablets"]] == [3, 3]
    described = (await _kudu(cluster, "table describe metrics")).text
    assert "key STRING NOT NULL" in described
    assert "REPLICAS 3" in described
    # HASH is not followed by RANGE, so there is no comma
    assert "\nHASH (key) PARTITIONS 2\n" in described
    await cluster.ok(client, "write", table="metrics", nonce="w", rows=ROWS)
    scanned = (await _kudu(cluster, "table scan metrics")).text.splitlines()
    assert scanned[-1] == "Total count 5"
    assert sum('string a="v3"' in line for line in scanned) == 1
    assert (await _kudu(cluster, "table scan none")).exit_code == 1


@on(deploy)
async def test_tables_are_created_altered_and_deleted(cluster):
    async def columns(table: str) -> list[str]:
        lines = (await _kudu(cluster, f"table describe {table}")).text.splitlines()
        return [line.strip(" ,") for line in lines if "NULL" in line]

    line = "table create t --columns id:int32,a:string --hash 4 --replicas 1"
    assert await _kudu(cluster, line) == Said("")
    assert await columns("t") == ["id INT32 NOT NULL", "a STRING NULLABLE"]
    (table,) = (await _json(cluster, "table list --tablets --format json"))["tables"]
    assert [len(tablet["replicas"]) for tablet in table["tablets"]] == [1] * 4
    for change in ("t --rename u", "u --add-column b:double", "u --rename-column a=c"):
        assert await _kudu(cluster, f"table alter {change}") == Said(""), change
    assert await columns("u") == ["id INT32 NOT NULL", "c STRING NULLABLE", "b DOUBLE NULLABLE"]
    assert await _kudu(cluster, "table alter u --drop-column c") == Said("")
    assert await columns("u") == ["id INT32 NOT NULL", "b DOUBLE NULLABLE"]
    assert await _kudu(cluster, "table create t") == Said("")
    assert await _kudu(cluster, "table delete u") == Said("")
    assert (await _kudu(cluster, "table list")).text == "t"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("table create metrics", "Already present"),
        ("table create t --replicas 2", "Invalid argument"),
        ("table create t --columns a:int8,a:int8", "Invalid argument"),
        ("table create t --columns a:double", "Invalid argument"),
        ("table alter metrics --drop-column none", "Not found"),
        ("table alter none --rename t", "Not found"),
        ("table delete none", "Not found"),
    ],
)
@on(deploy)
async def test_refusals_of_the_master_are_quoted(cluster, line, status):
    await _with_table(cluster)
    output = await _kudu(cluster, line)
    assert (output.exit_code, output.text, output.error.split(":")[0]) == (1, "", status), output
    assert (await _kudu(cluster, "table list")).text == "metrics"


@on(deploy)
async def test_output_of_a_scan_is_bounded(cluster, monkeypatch):
    client = await _with_table(cluster)
    await cluster.ok(client, "write", table="metrics", nonce="w", rows=ROWS)
    said = (await _kudu(cluster, "table scan metrics --limit 2")).text.splitlines()
    assert (len(said), said[-1]) == (3, "Stopped at 2 rows (--limit)")
    assert (await _kudu(cluster, "table scan metrics --limit 5")).text.endswith("Total count 5")
    for limit in ("-1", "0", "1000001", "1e3"):
        with pytest.raises(UsageError, match="--limit"):
            await _kudu(cluster, f"table scan metrics --limit {limit}")
    monkeypatch.setattr("targets.kudu.tools.tool.TEXT_BYTES_MAX", 10)
    cut = await _kudu(cluster, "table scan metrics")
    assert (len(cut.text), cut.exit_code, "bytes" in cut.error) == (10, 1, True)


@on(deploy)
async def test_a_name_gives_no_orders_to_a_terminal(cluster):
    client, name = cluster.new_client(), "red\x1b[31m\x9b\r\x7f"
    await cluster.ok(client, "create", name=name, nonce="made")
    output = await _kudu(cluster, "table list")
    assert output.text.splitlines() == ["red\\u001b[31m\\u009b\\u000d\\u007f"]
    assert (await _json(cluster, "table list --format json"))["tables"][0]["name"] == name


@on(deploy)
async def test_a_tablet_server_in_maintenance_is_named(cluster):
    def states(text: str) -> bool:
        return "Tablet Server States" in text and "MAINTENANCE_MODE" in text

    assert not states((await _kudu(cluster, "ksck")).text)
    servers = await _json(cluster, "tserver list --format json")
    masters = [f"{name}:7051" for name in ("m1", "m2", "m3")]
    admin = Admin(cluster.env, RpcClient(cluster.env), masters)
    mode = m.TServerStateChange.ENTER_MAINTENANCE_MODE
    change = m.ChangeTServerStateRequest(servers[0]["uuid"], mode)
    await admin.ask_leader(change)
    assert states((await _kudu(cluster, "ksck")).text)


@on(deploy, spare_masters=1)
async def test_a_master_is_added_and_another_removed(cluster):
    async def members() -> set[str]:
        masters = await _json(cluster, "master list --format json")
        return {row["rpc-addresses"] for row in masters if row["member_type"] == "VOTER"}

    async def until(*expected: str) -> None:
        async def check() -> Convergence:
            now = await members()
            return Convergence(ok=now == {f"{n}:7051" for n in expected}, pending=(str(now),))

        await cluster.until("these masters", check)

    await _with_table(cluster)
    assert (await _kudu(cluster, "master add m4:7051")).exit_code == 0
    await until("m1", "m2", "m3", "m4")
    again = await _kudu(cluster, "master add m4:7051")
    assert (again.exit_code, again.error.split(":")[0]) == (1, "Already present")
    gone = min({"m1", "m2", "m3"} - {await cluster.leader()})
    assert (await _kudu(cluster, f"master remove {gone}:7051")).exit_code == 0
    await until(*({"m1", "m2", "m3", "m4"} - {gone}))
    assert (await _kudu(cluster, "master remove m9:7051")).exit_code == 1

    async def healthy() -> Convergence:  # all masters learn of the commit one heartbeat later
        output = await _kudu(cluster, "ksck")
        return Convergence(ok=output.exit_code == 0, pending=(output.text,))

    await cluster.until("healthy", healthy)


@on(deploy)
async def test_a_tablets_leader_steps_down(cluster):
    await _with_table(cluster)

    async def leaders() -> dict[str, str]:
        tables = await _json(cluster, "table list --tablets --format json")
        return {
            tablet["tablet_id"]: replica["ts_uuid"]
            for table in tables["tables"]
            for tablet in table["tablets"]
            for replica in tablet["replicas"]
            if replica["role"] == "LEADER"
        }

    before = await leaders()
    tablet = min(before)
    output = await _kudu(cluster, f"tablet leader_step_down {tablet}")
    assert output.exit_code == 0, output

    async def moved() -> Convergence:
        now = await leaders()
        return Convergence(ok=now.get(tablet) not in {None, before[tablet]}, pending=(str(now),))

    await cluster.until("led by another", moved)
    output = await _kudu(cluster, "tablet leader_step_down none")
    assert (output.exit_code, output.error.split(":")[0]) == (1, "Not found")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ksck --format xml",
        "ksck --check",
        "tablet",
        "table scan",
        "master burn",
        "table create t --columns a",
        "table create t --columns a:int33",
        "table create t --hash 0",
        "table alter t",
        "table alter t --rename-column a",
        "table alter t --rename u --drop-column a",
    ],
)
@on(deploy)
async def test_other_arguments_are_refused(cluster, line):
    with pytest.raises(UsageError):
        await _kudu(cluster, line)
