"""The state machine of a tablet applies writes of rows, each exactly once."""

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.flags import Flags
from targets.kudu.hybrid_clock import from_micros
from targets.kudu.messages import RowErrorCode as Error
from targets.kudu.messages import RowKind
from targets.kudu.tserver.mvcc import decode_row
from targets.kudu.tserver.rowset import StoredRows
from targets.kudu.tserver.tablet import AdvanceOp, AlterSchemaOp, TabletMachine, WriteOp

KEY = m.Column(0, "key", is_key=True)
COLUMNS = {1: m.Column(1, "a"), 2: m.Column(2, "b"), 3: m.Column(3, "c", is_nullable=False)}


def schema(*ids: int) -> m.Schema:
    return m.Schema((KEY, *(COLUMNS[column_id] for column_id in ids)))


def machine(*ids: int, times: list[int] | None = None, **flags: int) -> TabletMachine:
    seen = [] if times is None else times
    return TabletMachine(
        table_name="t",
        schema=schema(*(ids or (1, 2))),
        schema_version=0,
        flags=Flags(**flags),
        on_change=lambda: None,
        on_timestamp=seen.append,
    )


def write(
    at: int, *rows: m.RowOperation, by: str = "c", number: int | None = None, **more
) -> WriteOp:
    seq_no = at if number is None else number
    return WriteOp(at, by, seq_no, 0, rows, **more)


def row(kind: str, key: str, **values: str | None) -> m.RowOperation:
    ids = {"a": 1, "b": 2, "c": 3}
    return m.RowOperation(RowKind[kind], (key,), {ids[name]: v for name, v in values.items()})


class Log:
    def __init__(self, tablet: TabletMachine) -> None:
        self.tablet = tablet
        self.index = 0

    def __call__(self, operation):
        self.index += 1
        return self.tablet.apply(self.index, 1, TabletMachine.encode(operation))


def rows_of(tablet: TabletMachine, at: int | None = None) -> dict[str, dict[int, m.Value]]:
    page = tablet.rows.scan(
        tablet.last_timestamp if at is None else at, b"", b"", rows_max=200, bytes_max=1 << 20
    )
    assert page.next_key is None
    return {key.decode(): decode_row(value) for key, value in page.rows}


ROWS = st.builds(
    m.RowOperation,
    st.sampled_from(list(RowKind)),
    st.tuples(st.sampled_from("xyz")),
    st.dictionaries(st.integers(1, 3), st.none() | st.sampled_from("uvw"), max_size=3),
)
OPERATIONS = st.lists(
    st.one_of(
        st.builds(
            WriteOp,
            st.integers(0, 40),
            st.sampled_from("cd"),
            st.integers(0, 6),
            st.integers(0, 2),
            st.lists(ROWS, min_size=1, max_size=4).map(tuple),
            st.lists(st.integers(0, 3), max_size=1).map(tuple),
        ),
        st.builds(AdvanceOp, st.integers(0, 40)),
        st.builds(
            AlterSchemaOp,
            st.sampled_from([schema(1, 2), schema(1), schema(1, 2, 3), schema(2)]),
            st.integers(0, 6),
        ),
    ),
    max_size=15,
)


class Oracle:
    """The expected content of a tablet, by a simple model."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, str]] = {}
        self.tables: dict[int, dict[str, dict[int, str]]] = {}
        self.time = 1
        self.columns = schema(1, 2)
        self.version = 0
        self.results: dict[tuple[str, int], tuple[int, list[tuple[int, Error]]]] = {}
        self.stale: dict[str, int] = {}

    def apply(self, operation):
        if isinstance(operation, AlterSchemaOp):
            if operation.schema_version > self.version:
                self.columns, self.version = operation.schema, operation.schema_version
        elif isinstance(operation, AdvanceOp):
            self.time = max(self.time, operation.timestamp)
        else:
            return self._write(operation)
        self.tables[self.time] = {key: dict(row) for key, row in self.rows.items()}
        return None

    def _write(self, operation: WriteOp):
        name = (operation.client_id, operation.seq_no)
        if name in self.results:
            return self.results[name]
        if operation.seq_no < self.stale.get(operation.client_id, 0):
            return None
        self.time = max(self.time + 1, operation.timestamp)
        errors = []
        for position, one in enumerate(operation.operations):
            foreign = position in operation.foreign
            error = Error.OUT_OF_RANGE if foreign else self._row(one)
            if error is not None:
                errors.append((position, error))
        self.tables[self.time] = {key: dict(row) for key, row in self.rows.items()}
        below = min(operation.first_incomplete, operation.seq_no)
        self.stale[name[0]] = max(self.stale.get(name[0], 0), below)
        self.results[name] = (self.time, errors)
        for client, number in list(self.results):
            if number < self.stale.get(client, 0):
                del self.results[client, number]
        return self.time, errors

    def _row(self, one: m.RowOperation) -> Error | None:
        (key,) = one.key
        values = {c.id: c for c in self.columns.columns if not c.is_key}
        there = key in self.rows
        if one.kind is RowKind.UPDATE and not one.values:
            return Error.INVALID_ARGUMENT
        if one.kind in {RowKind.UPDATE, RowKind.DELETE} and not there:
            return Error.NOT_FOUND
        if one.kind is RowKind.INSERT and there:
            return Error.ALREADY_PRESENT
        if one.kind is RowKind.DELETE:
            del self.rows[key]
            return None
        if not set(one.values) <= set(values):
            return Error.INVALID_ARGUMENT
        for column in values.values():
            given = one.values.get(column.id) if column.id in one.values else "absent"
            if not column.is_nullable and (given is None or (given == "absent" and not there)):
                return Error.INVALID_ARGUMENT
        after = {**self.rows.get(key, {}), **one.values}
        self.rows[key] = {c: v for c, v in after.items() if v is not None}
        return None

    def at(self, timestamp: int) -> dict[str, dict[int, str]]:
        older = [at for at in self.tables if at <= timestamp]
        return self.tables[max(older)] if older else {}


@given(OPERATIONS, st.integers(0, 15))
def test_a_tablet_does_what_its_log_says(operations, cut):
    oracle, one, other = Oracle(), machine(), machine()
    for index, operation in enumerate(operations):
        if index == cut:
            data = other.snapshot()
            other = machine()
            asyncio.run(other.restore(data, index))
        before = one.last_timestamp
        payload = TabletMachine.encode(operation)
        outcome = one.apply(index + 1, 7, payload)
        assert outcome == other.apply(index + 1, 7, payload)
        assert one.digest() == other.digest()
        expected = oracle.apply(operation)
        assert oracle.time == one.last_timestamp >= before
        if isinstance(operation, WriteOp):
            result = outcome.result
            assert (expected is None) is (result is None)
            if result is not None:
                assert expected == (result.timestamp, [(e.row, e.code) for e in result.errors])
                assert outcome.again is (result.index != index + 1)
        assert oracle.rows == rows_of(one)
    for at in range(one.last_timestamp + 1):
        assert oracle.at(at) == rows_of(one, at) == rows_of(other, at)


async def test_others_continue_on_the_old_rows_during_a_restore():
    source, target = Log(machine()), Log(machine(rows_loaded_at_once=10))
    for number in range(1, 101):
        source(write(number, row("UPSERT", f"{number:03d}", a="new")))
    target(write(1, row("UPSERT", "x", a="old")))
    restoring = asyncio.create_task(target.tablet.restore(source.tablet.snapshot(), 100))
    seen = 0
    while not restoring.done():
        assert (rows_of(target.tablet), target.tablet.applied_index) == ({"x": {1: "old"}}, 1)
        seen += 1
        await asyncio.sleep(0)
    assert seen > 10
    assert rows_of(target.tablet) == rows_of(source.tablet)
    assert target.tablet.digest() == source.tablet.digest()


def test_timestamps_rise_along_the_log_whatever_leaders_propose():
    times: list[int] = []
    log = Log(machine(times=times))
    proposed = [10, 5, 30, 30]
    given_to = [log(write(at, row("UPSERT", "x"), number=n)) for n, at in enumerate(proposed)]
    assert [10, 11, 30, 31] == [outcome.result.timestamp for outcome in given_to] == times
    log(AdvanceOp(20))
    log(AdvanceOp(40))
    assert log(write(35, row("UPSERT", "x"))).result.timestamp == 41
    assert times == [10, 11, 30, 31, 40, 41]


def test_columns_come_and_go_and_old_rows_follow():
    log = Log(machine(1, 2))
    log(write(1, row("INSERT", "x", a="1", b="2")))
    log(AlterSchemaOp(schema(1), 1))
    dropped = log(write(2, row("UPDATE", "x", b="3"), row("UPDATE", "x", a="4")))
    assert [m.RowError(0, Error.INVALID_ARGUMENT)] == list(dropped.result.errors)
    log(AlterSchemaOp(schema(1, 3), 2))
    assert rows_of(log.tablet)["x"].get(3) is None
    missing = log(write(3, row("INSERT", "y", a="1"), row("UPDATE", "x", a="5")))
    assert [m.RowError(0, Error.INVALID_ARGUMENT)] == list(missing.result.errors)
    assert log(write(4, row("INSERT", "y", c="1"))).result.errors == ()


def test_an_update_without_cells_is_refused_as_by_kudu():
    log = Log(machine())
    log(write(1, row("INSERT", "x", a="1")))
    for key in ("x", "missing"):  # Kudu reads the request before it looks for the row
        answer = log(write(2, row("UPDATE", key)))
        assert [m.RowError(0, Error.INVALID_ARGUMENT)] == list(answer.result.errors)
    assert rows_of(log.tablet)["x"] == {1: "1"}


def test_results_and_history_expire_by_the_time_of_the_log():
    log = Log(machine(tablet_history_max_age_sec=100, remember_responses_ttl_ms=60_000))
    second = from_micros(1_000_000)
    log(write(second, row("INSERT", "x", a="1"), number=1))
    log(write(2 * second, row("UPDATE", "x", a="2"), number=2))
    assert log(write(3 * second, row("DELETE", "x"), number=1)).again
    log(AdvanceOp(61 * second - 1))
    assert log(write(0, row("DELETE", "x"), number=1)).again
    log(AdvanceOp(61 * second))
    assert log(write(0, row("DELETE", "x"), number=1)).result is None
    assert log(write(0, row("DELETE", "x"), number=2)).again
    assert rows_of(log.tablet, second) == {"x": {1: "1"}}
    log(AdvanceOp(102 * second))
    assert log.tablet.rows.history_start == 2 * second
    assert rows_of(log.tablet) == {"x": {1: "2"}}


def test_a_log_that_jumps_ahead_for_hours_has_nothing_written_twice():
    log, hour = Log(machine()), from_micros(3_600_000_000)
    log(write(hour, row("UPSERT", "x", a="1"), number=1))
    log(write(3 * hour, row("UPSERT", "x", a="2"), by="another"))
    assert log(write(3 * hour, row("UPSERT", "x", a="1"), number=1)).result is None
    assert rows_of(log.tablet) == {"x": {1: "2"}}


def test_snapshots_hold_what_changed_until_that_is_more_than_what_is_alive():
    log = Log(machine(tablet_history_max_kb=16))
    sizes, whole = [], []
    for number in range(1, 400):
        log(write(number, *(row("UPSERT", f"{k}", a="v" * 1000) for k in range(10))))
        stored = msgspec.msgpack.decode(log.tablet.snapshot(), type=StoredRows)
        whole.append(stored.is_whole)
        sizes.append(sum(map(len, stored.blocks)))
    assert whole[0]
    assert 2 <= sum(whole) <= 20
    changes = [size for size, is_whole in zip(sizes, whole, strict=True) if not is_whole]
    assert max(changes) < 12_000
    assert log.tablet.rows.version_bytes < 40_000
