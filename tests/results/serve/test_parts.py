"""The functions that compute what the pages show, compared with plain Python."""

import contextlib
import os

import pytest
from hypothesis import given, settings

from harness.errors import HistoryError
from harness.ops import HARNESS, NEMESIS, History, Op, OpType
from results.facts.run_numbers import run_numbers
from results.report import number_words as numbers
from results.serve.compare import flat
from results.serve.library import Library
from results.serve.paths import read_bounded
from results.statistics.estimates import QUANTILES
from tests.results.report.oracle import rank
from tests.results.run.perfetto.histories import histories
from tests.results.serve.stores import add_run, history
from tests.tiers import examples


def sealed(folder, made):
    return add_run(folder / "store", "x", "r", made=made)


@given(made=histories(backwards=False))
@settings(max_examples=examples(40), deadline=None)
def test_numbers_are_those_of_the_history(made, tmp_path_factory):
    numbers = run_numbers(sealed(tmp_path_factory.mktemp("n"), made))
    assert numbers.lines == len(made)
    assert numbers.end_ns == max((op.time for op in made), default=0)
    for kind in (numbers.total, *numbers.kinds):
        pairs = [pair for pair in made.pairs if kind.f in {"all", pair.invoke.f}]
        count = {name: sum(pair.type.value == name for pair in pairs) for name in ("ok", "fail")}
        infos = [pair for pair in pairs if pair.type is OpType.INFO]
        assert (kind.ok, kind.fail) == (count["ok"], count["fail"])
        assert kind.info == sum(pair.completion is not None for pair in infos)
        assert kind.open == sum(pair.completion is None for pair in infos)
        latencies = [p.completion.time - p.invoke.time for p in pairs if p.type is OpType.OK]
        expected = [rank(latencies, share) for share in QUANTILES] if latencies else []
        assert list(kind.latency_ns) == expected
    assert {kind.f for kind in numbers.kinds} == {pair.invoke.f for pair in made.pairs}


def test_numbers_of_the_chaos_phase_seconds_and_faults(tmp_path):
    made = history(count=20)
    numbers = run_numbers(sealed(tmp_path, made))
    begin, end = 2_000_000_000, 9_000_000_000
    assert numbers.chaos_ns == (begin, end)
    inside = [
        pair for pair in made.pairs
        if pair.type is OpType.OK and begin <= pair.completion.time < end
    ]  # fmt: skip
    assert numbers.ok_per_s == len(inside) / 7
    latencies = [pair.completion.time - pair.invoke.time for pair in inside]
    assert numbers.p99_ns == rank(latencies, 990)
    band = numbers.faults[0]
    assert (band.nemesis, band.targets) == ("kill", "m1")
    assert (band.start_ns, band.end_ns) == (3_000_000_000, 6_000_000_000)
    done = [(p.completion.time // 10**9, p.type) for p in made.pairs if p.completion]
    for second, counts in enumerate(numbers.seconds):
        for kind, number in zip((OpType.OK, OpType.FAIL, OpType.INFO), counts, strict=True):
            assert number == done.count((second, kind))
    assert sum(map(sum, numbers.seconds)) == 19


def test_an_unhealed_fault_lasts_to_the_end(tmp_path):
    made = History(
        [
            Op(0, 5, HARNESS, OpType.INFO, "phase", {"phase": "chaos"}),
            Op(1, 7, NEMESIS, OpType.INFO, "kill", inject("f", ["m1"])),
            Op(2, 8, NEMESIS, OpType.INFO, "kill", inject("g", [])),
            Op(3, 99, 0, OpType.INVOKE, "get"),
        ]
    )  # fmt: skip
    numbers = run_numbers(sealed(tmp_path, made))
    assert [(band.start_ns, band.end_ns) for band in numbers.faults] == [(7, 99)]
    assert numbers.chaos_ns == (5, 99)


def inject(fault, targets):
    return {"action": "inject", "fault": fault, "targets": targets}


def test_no_operation_at_all_has_no_rate(tmp_path):
    numbers = run_numbers(sealed(tmp_path, History([])))
    assert (numbers.ok_per_s, numbers.p99_ns, numbers.total.count) == (None, None, 0)


@pytest.mark.parametrize(
    "types",
    [("ok",), ("invoke", "invoke"), ("invoke", "ok", "ok"), ("invoke", "what")],
)
def test_columns_that_are_no_history_are_refused(tmp_path, types):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = sealed(tmp_path, History([Op(0, 0, 0, OpType.INVOKE, "get")]))
    path = folder / "history.parquet"
    row = pq.read_table(path)
    table = pa.concat_tables([row] * len(types))
    for name, values in (("type", list(types)), ("index", list(range(len(types))))):
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    pq.write_table(table, path)
    with pytest.raises(HistoryError):
        run_numbers(folder)


def test_only_plain_files_are_read_and_up_to_a_bound(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(b"x" * 11)
    assert len(read_bounded(path, 11)) == 11
    with pytest.raises(ValueError, match="at most 10"):
        read_bounded(path, 10)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a plain file"):
        read_bounded(tmp_path / "pipe", 10)


def test_leaves_of_json_by_path_and_their_bound():
    value = {"a": {"b": [], "c": [1, "x"]}, "d": [{"e": None}, 3], "f": {}}
    assert dict(flat(value)) == {
        "a.b": "[]", "a.c": '[1,"x"]', "d[0].e": "null", "d[1]": "3", "f": "{}",
    }  # fmt: skip
    cut = list(flat({str(n): n for n in range(9)}, most=4))
    assert [path for path, _ in cut] == ["0", "1", "2", "3", "(cut)"]


def test_numbers_are_read_again_when_the_history_changed(store):
    folder = add_run(store, "x", "r", made=history(count=8))
    with contextlib.closing(Library(str(store))) as library:
        row = library.row("x/r")
        assert library.numbers(row).total.count == 8
        assert library.numbers(row) is library.numbers(row)
        other = add_run(store, "x", "s", made=history(count=12))
        (other / "history.parquet").replace(folder / "history.parquet")
        assert library.numbers(row).total.count == 12


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (numbers.count(1_234_567), "1,234,567"),
        (numbers.count(1234.5), "1,234"),
        (numbers.count(12.345), "12.3"),
        (numbers.count(None), numbers.NOTHING),
        (numbers.seconds(1.25), "1.25 s"),
        (numbers.seconds(7200), "2.0 h"),
        (numbers.seconds(None), numbers.NOTHING),
        (numbers.milliseconds(1_250_000), "1.2"),
        (numbers.milliseconds(2_500_000_000), "2,500"),
        (numbers.milliseconds(None), numbers.NOTHING),
        (numbers.size(1023), "1023 B"),
        (numbers.size(1536), "1.5 kB"),
        (numbers.size(3 << 20), "3.0 MB"),
        (numbers.size(5 << 40), "5120.0 GB"),
    ],
)
def test_numbers_as_people_read_them(written, text):
    assert written == text
