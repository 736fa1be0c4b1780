"""A single master is down: the bench with short outages, and its eyes."""

from collections import Counter

import pytest

from bench.claims import Claim, tell
from bench.single_master import DEADLINE_S, OUTAGES, Load, Tally, claims, run
from harness.ops import OpType
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.title)
def test_known_tables_are_served_without_a_master_and_all_else_waits_or_fails(outage):
    for claim in run("sim", 5.0, (outage,)):
        assert claim.holds, claim


@on(deploy, masters=1)
async def test_tablets_are_led_by_others_and_servers_restart_without_a_master(cluster: Deployed):
    client, world = cluster.new_client(), cluster.session.cluster
    await cluster.ok(client, "create", name="t", partitions=3)
    await cluster.until_done(client, "is-create-done", "t")
    keys = [f"k{number:02}" for number in range(20)]

    async def write(value: str, *, tries: int = 1) -> None:
        rows = [["upsert", key, {"a": value}] for key in keys]
        for number in range(tries):
            nonce = f"{value} {number}"
            done = await cluster.do(client, "write", table="t", nonce=nonce, rows=rows)
            if done.type is OpType.OK:
                return
        pytest.fail(f"not written: {done}")

    await write("first")
    await world.kill("m1")
    for node in ("t1", "t2", "t3"):
        await world.kill(node)
        await write(f"without {node}", tries=2)  # the first may lose the connection to it
        await world.start(node)
        scan = await cluster.ok(client, "scan", table="t")
        found = {key: cells["a"] for part in scan["parts"] for key, cells in part["rows"]}
        assert found == dict.fromkeys(keys, f"without {node}")


def good() -> Load:
    load = Load(cluster=None)
    load.cached = Tally(None, Counter({OpType.OK: 99, OpType.FAIL: 1}), longest_s=2.5)
    load.unknown = Tally(None, Counter({OpType.FAIL: 3}), Counter({"NO_LEADER": 3}), longest_s=2.0)
    load.ddl = Tally(None, Counter({OpType.INFO: 1, OpType.FAIL: 2}), Counter({"X": 3}))
    return load


def broken(load: Load, back_s: float = 1.0, done_anyway: tuple[str, ...] = ()) -> list[str]:
    found = claims(load, "x", 0.01, back_s, list(done_anyway))
    return [claim.what for claim in found if not claim.holds]


def set_up(change) -> Load:
    load = good()
    change(load)
    return load


BAD = {
    "one more failed": lambda load: load.cached.types.update({OpType.FAIL: 1}),
    "nothing was tried": lambda load: load.cached.types.clear(),
    "a row is gone": lambda load: load.wrong.append("c0 k000001: None"),
    "an unknown table was written": lambda load: load.unknown.types.update({OpType.OK: 1}),
    "nobody knows": lambda load: load.unknown.types.update({OpType.INFO: 1}),
    "no stranger tried": lambda load: load.unknown.types.clear(),
    "too long": lambda load: setattr(load.unknown, "longest_s", DEADLINE_S + 0.02),
    "DDL was done": lambda load: load.ddl.types.update({OpType.OK: 1}),
    "no DDL was tried": lambda load: load.ddl.types.clear(),
    "DDL took too long": lambda load: setattr(load.ddl, "longest_s", DEADLINE_S + 0.02),
    "no reason": lambda load: load.ddl.unclear.append("create: ''"),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_what_does_not_hold_is_seen(change):
    assert broken(good()) == []
    assert len(broken(set_up(change))) == 1


def test_a_late_return_and_what_was_done_anyway_are_seen():
    assert len(broken(good(), back_s=5.1)) == 1
    assert len(broken(good(), done_anyway=("n1",))) == 1


def test_a_table_of_claims_says_whether_all_hold(capsys):
    fine = Claim("x", "y", "z", holds=True)
    assert tell([fine, fine]) == 0
    assert tell([fine, fine._replace(holds=False), fine]) == 1
    assert tell([]) == 1
    assert "DOES NOT HOLD" in capsys.readouterr().out
