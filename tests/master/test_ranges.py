"""Alters add and drop ranges of a table, with their tablets and hash schemas."""

import asyncio
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.master.catalog.ranges import bad_ranges, change_ranges, check_ranges
from targets.kudu.master.catalog.records import (
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
)
from targets.kudu.master.errors import RefusedError
from targets.kudu.partitions import owns, partition_key, range_partitions
from tests.master.fakes import FakeMaster, create_request, refusal
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
ADD, DROP = m.StepType.ADD_RANGE_PARTITION, m.StepType.DROP_RANGE_PARTITION
KEY = m.Column(0, "key", is_key=True)
Code, Status = m.MasterErrorCode, m.AppStatus


def bounded(buckets: int = 2) -> m.PartitionSchema:
    return m.PartitionSchema(buckets, ("key",), ("key",), is_bounded=True)


def add(start: str, end: str, buckets: int | None = None) -> m.AlterStep:
    return m.AlterStep(ADD, start=start.encode(), end=end.encode(), num_hash_buckets=buckets)


def drop(start: str, end: str) -> m.AlterStep:
    return m.AlterStep(DROP, start=start.encode(), end=end.encode())


class Table:
    """A table with the range [a, b), as a master stores it."""

    def __init__(self, buckets: int = 2, *, stores_own: bool = False) -> None:
        self.stores_own = stores_own
        self.ids = itertools.count()
        self.schema = bounded(buckets)
        first = range_partitions(self.schema, b"a", b"b", buckets)
        self.tablets = [self.tablet(partition) for partition in first]

    def tablet(self, partition: m.Partition) -> TabletRecord:
        return TabletRecord(f"{next(self.ids):032x}", "T", partition, TabletState.RUNNING)

    def alter(self, *steps: m.AlterStep) -> str | None:
        table = TableRecord("T", "t", 0, m.Schema((KEY,)), self.schema, 1, 1, TableState.RUNNING)
        try:
            change = change_ranges(
                table,
                self.tablets,
                steps,
                new_id=lambda: f"{next(self.ids):032x}",
                stores_own=self.stores_own,
            )
        except RefusedError as refused:
            return refused.error.status.name
        self.schema = change.partition_schema
        kept = [tablet for tablet in self.tablets if tablet not in change.dropped]
        self.tablets = sorted([*kept, *change.added], key=lambda t: t.partition.start)
        return None

    def owners(self, key: str) -> int:
        place = partition_key(self.schema, (KEY,), (key,))
        return sum(owns(tablet.partition, place) for tablet in self.tablets)

    @property
    def custom(self) -> list[tuple[bytes, int]]:
        return [(each.start, each.num_hash_buckets) for each in self.schema.custom_ranges]


LETTERS = "bcdef"
ranges = st.tuples(st.sampled_from(LETTERS), st.sampled_from(LETTERS)).filter(lambda r: r[0] < r[1])
steps = st.one_of(
    st.tuples(ranges, st.sampled_from([None, 2, 3])).map(lambda s: add(*s[0], s[1])),
    ranges.map(lambda r: drop(*r)),
)


@given(st.lists(st.lists(steps, min_size=1, max_size=3), max_size=12))
def test_ranges_are_those_of_a_plain_model(alters):
    table, model = Table(), {("a", "b"): 2}
    for alter in alters:
        after: dict[tuple[str, str], int] | None = dict(model)
        for step in alter:
            assert after is not None
            start, end = step.start.decode(), step.end.decode()
            if step.type is DROP:
                fits = after.pop((start, end), None) is not None
            else:
                fits = all(end <= low or high <= start for low, high in after)
                after[start, end] = step.num_hash_buckets or 2
            if not fits:
                after = None
                break
        assert (table.alter(*alter) is None) is (after is not None)
        model = model if after is None else after
        for key in ("a", "ax", "b", "bx", "c", "cx", "d", "dx", "e", "ex", "f", "fx"):
            inside = any(low <= key < high for low, high in model)
            assert table.owners(key) == inside, key
        assert len(table.tablets) == sum(model.values())
        custom = {(low.encode(), buckets) for (low, _), buckets in model.items() if buckets != 2}
        assert sorted(table.custom) == sorted(custom)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (add("a", "b"), "ALREADY_PRESENT"),
        (add("aa", "c"), "ALREADY_PRESENT"),
        (drop("a", "c"), "NOT_FOUND"),
        (add("", "c"), "INVALID_ARGUMENT"),
        (add("d", "c"), "INVALID_ARGUMENT"),
        (add("c", "d", 1), "INVALID_ARGUMENT"),
    ],
)
def test_steps_that_do_not_apply_are_refused(step, kind):
    table = Table()
    before = list(table.tablets)
    assert table.alter(step) == kind
    assert table.tablets == before


def test_a_table_without_hash_buckets_has_ranges_without_any():
    table = Table(1)
    assert table.alter(add("c", "d", 2)) == "INVALID_ARGUMENT"
    assert table.alter(add("c", "d", 1)) is None
    assert (table.owners("cx"), table.custom) == (1, [])


@pytest.mark.parametrize("stores_own", [False, True])
def test_kudu_3723_leaves_the_hash_schema_of_a_dropped_range(stores_own):
    table = Table(stores_own=stores_own)
    assert table.alter(add("c", "d", 2)) is None
    assert table.alter(drop("c", "d")) is None
    assert table.custom == [(b"c", 2)] * stores_own
    assert table.alter(add("c", "d", 2)) is None  # now the range has two hash schemas
    if stores_own:
        with pytest.raises(RefusedError):
            check_ranges(table.schema)
    assert table.alter(drop("c", "d")) == ("INVALID_ARGUMENT" if stores_own else None)


def test_kudu_3723_does_not_change_other_ranges():
    for stores_own in (False, True):
        table = Table(stores_own=stores_own)
        for _ in range(3):
            assert table.alter(add("c", "d"), add("e", "f", 3)) is None
            assert table.custom == [(b"e", 3)]
            assert table.alter(drop("c", "d"), drop("e", "f")) is None
            assert table.custom == []


def test_the_first_ranges_of_a_table_are_checked():
    def bad(schema: m.PartitionSchema, *bounds: tuple[str, str]) -> bool:
        first = [m.RangeHash(low.encode(), high.encode(), 2) for low, high in bounds]
        return bad_ranges(schema, first) is not None

    assert not bad(bounded(), ("a", "b"), ("b", "c"))
    assert not bad(m.PartitionSchema(2))
    assert bad(bounded())
    assert bad(bounded(), ("a", "c"), ("b", "d"))
    assert bad(bounded(), ("b", "a"))
    assert bad(m.PartitionSchema(2, ("key",), ("key",)), ("a", "b"))


# --- the same through a master -----------------------------------------------------------------


async def test_a_master_adds_and_drops_the_tablets_of_ranges():
    master = await FakeMaster().lead()
    create = msgspec.structs.replace(
        create_request("t"),
        partition_schema=bounded(),
        ranges=(m.RangeHash(b"a", b"b", 2),),
    )
    assert (await master.ask(create)).error is None
    await asyncio.sleep(0.1)
    await master.run_tablets("t")
    first = {tablet.id for tablet in master.catalog.live_tablets(master.catalog.by_name["t"])}
    assert len(first) == 2
    assert (await master.alter("t", add("c", "d", 3))).error is None
    await asyncio.sleep(2)
    await master.run_tablets("t")
    await asyncio.sleep(2)
    table = master.catalog.tables[master.catalog.by_name["t"]]
    assert (table.state, table.version) == (TableState.RUNNING, 1)
    assert len((await master.locate("t")).tablets) == 5
    assert refusal(await master.alter("t", add("c", "e"))).code is Code.INVALID_SCHEMA
    assert (await master.alter("t", drop("a", "b"))).error is None
    await asyncio.sleep(2)
    assert {call.tablet_id for call in master.client.of("DeleteTablet")} == first
    await master.fail_over()
    schema = (await master.get("t")).partition_schema
    assert schema.custom_ranges == (m.RangeHash(b"c", b"d", 3),)
    live = master.catalog.live_tablets(table.id)
    assert {tablet.partition.start[4:] for tablet in live} == {b"c"}


@pytest.mark.parametrize("bugs", [(), ("KUDU-3723",)])
async def test_kudu_3723_makes_a_table_that_cannot_be_opened(bugs):
    master = await FakeMaster(*bugs).lead()
    create = msgspec.structs.replace(
        create_request("t"),
        partition_schema=bounded(),
        ranges=(m.RangeHash(b"a", b"b", 2),),
    )
    assert (await master.ask(create)).error is None
    for step in (add("c", "d", 2), drop("c", "d"), add("c", "d", 2)):
        assert (await master.get("t")).error is None
        assert (await master.alter("t", step)).error is None
    answer = await master.get("t")
    if bugs:
        assert refusal(answer).status is Status.INVALID_ARGUMENT
    else:
        assert answer.error is None
