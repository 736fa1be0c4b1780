"""Masters 1 -> 3 -> 5 -> 3 while clients and tablet servers know the first one only."""

import asyncio
from types import SimpleNamespace

import pytest

from bench.migration import Way, run
from bench.migration_load import Load
from harness.ops import OpType
from harness.plugins import Completion
from tests.support.virtual import run as in_virtual_time


@pytest.mark.parametrize(
    "way",
    [Way(True, "none"), Way(False, "kill", 2)],
    ids=str,
)
@pytest.mark.slow
def test_nothing_is_lost_and_service_goes_on(way):
    rows = run("sim", way, show=lambda _: None)
    assert [row.bad for row in rows] == [[]] * 4
    assert [row.members for row in rows] == [
        ("m1", "m2", "m3"),
        ("m1", "m2", "m3", "m4", "m5"),
        ("m1", "m4", "m5"),
        ("m1", "m4", "m5"),
    ]
    assert [row.hit == "-" for row in rows] == [way.fault == "none"] * 4


# --- what the bench says of a cluster that breaks its word -------------------------------------


class Answers:
    """A client that says what is in `rows` and `tables`, whatever was written."""

    def __init__(self, rows=(), tables=(), fails=()):
        self.rows, self.tables, self.fails = rows, tables, fails

    async def invoke(self, request, *, timeout_s):
        value = {
            "write": {"rows": ["ok"]},
            "scan": {"parts": [{"rows": [[key, {}] for key in self.rows]}]},
            "list": {"tables": [[name, "id", 0] for name in self.tables]},
        }.get(request.f, {})
        if request.f in self.fails:
            return Completion(OpType.FAIL, None, "TIMED_OUT")
        return Completion(OpType.OK, value)


ROWS, TABLES = ["0.000000", "1.000000", "2.000000"], ["d0.0", "d1.0", "d2.0", "d3.0"]


@pytest.mark.parametrize(
    ("client", "missing"),
    [
        (Answers(ROWS, TABLES), []),
        (Answers(ROWS[1:], TABLES), ["row 0.000000"]),
        (Answers(ROWS, TABLES[:3]), ["table d3.0 is not there"]),
        (Answers(fails={"scan"}), ["scan: TIMED_OUT"]),
        (Answers(fails={"list"}), ["list: TIMED_OUT"]),
        (Answers([], [], fails={"write", "create"}), None),  # nothing was acknowledged at all
    ],
)
def test_what_was_acknowledged_is_missed(client, missing):
    async def main():
        clock = SimpleNamespace(monotonic_ns=lambda: int(loop.time() * 1e9))
        session = SimpleNamespace(env=SimpleNamespace(clock=clock))
        loop = asyncio.get_running_loop()
        load = Load(session, SimpleNamespace(client=lambda _: client))
        await load.start()
        await asyncio.sleep(0)
        await load.stop()
        return await load.missing(), load.longest_gap_s("rows", 0, 7_000_000_000)

    if missing is None:
        with pytest.raises(AssertionError):
            in_virtual_time(main())
        return
    found, gap_s = in_virtual_time(main())
    assert found == missing
    assert gap_s == pytest.approx(7.0, abs=0.3)


def test_a_table_that_was_deleted_is_gone():
    load = Load(SimpleNamespace(env=SimpleNamespace(clock=None)), SimpleNamespace(client=Answers))
    load._tables = {"old": False, "unknown": None}
    load._system = SimpleNamespace(client=lambda _: Answers([], ["old", "unknown"]))
    assert in_virtual_time(load.missing()) == ["table old is there still"]
