"""Columns have exactly the content of the history, as an independent decoder shows."""

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ops import Attempt, History, Op, OpType
from results.run.page.build import client_lanes
from results.run.page.columns import (
    ATTEMPTS_MAX,
    VALUE_CHARS_MAX,
    Strings,
    columns,
    mentioned,
    select,
    share_chars,
)
from tests.results.run.page.runs import small_run
from tests.results.run.perfetto.histories import CLIENTS, histories
from tests.tiers import examples

TYPES = ["ok", "fail", "info"]


CALLS = histories(backwards=False).map(
    lambda history: History(op for op in history if isinstance(op.process, int))
)


def decoded(raw, strings):
    """Decode the columns into rows, with plain loops."""
    rows, index, start, attempt = [], 0, 0, 0
    for n in range(raw["count"]):
        index += raw["index"][n]
        start += raw["start"][n]
        count = raw["attempts"][n]
        attempts = [
            (
                strings[raw["attempt"]["node"][a]],
                start + raw["attempt"]["start"][a],
                start + raw["attempt"]["start"][a] + raw["attempt"]["took"][a],
                strings[raw["attempt"]["outcome"][a]],
            )
            for a in range(attempt, attempt + count)
        ]
        attempt += count
        open_ended = raw["took"][n] < 0
        rows.append(
            {
                "index": index,
                "done": None if open_ended else index + raw["done"][n],
                "start": start,
                "end": None if open_ended else start + raw["took"][n],
                "process": raw["process"][n],
                "f": strings[raw["f"][n]],
                "type": TYPES[raw["type"][n]],
                "node": strings[raw["node"][n]],
                "error": strings[raw["error"][n]],
                "attempts": attempts,
                "call": strings[raw["call"][n]],
                "back": strings[raw["back"][n]],
            }
        )
    return rows


def expected(history):
    """Build from the ops the rows that `decoded` must return, without `History.pairs`."""
    rows, running = [], {}
    for op in history:
        if op.type is OpType.INVOKE:
            running[op.process] = len(rows)
            rows.append((op, None))
        else:
            rows[running[op.process]] = (rows[running[op.process]][0], op)
    text = msgspec.json.Encoder(order="sorted").encode
    return [
        {
            "index": call.index,
            "done": done and done.index,
            "start": call.time,
            "end": done.time if done else None,
            "process": call.process,
            "f": call.f,
            "type": done.type.value if done else "info",
            "node": (done and done.node) or "",
            "error": (done and done.error) or "",
            "attempts": [
                (a.node, a.start, a.end, a.outcome) for a in (done.attempts if done else ())
            ],
            "call": text(call.value).decode() if call.value else "",
            "back": text(done.value).decode() if done and done.value and done.value != call.value
            else "",
        }
        for call, done in rows
    ]  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(CALLS)
def test_columns_say_what_the_history_says(history):
    chosen = select(history, (), 0)
    strings, names = Strings(), Strings()
    lanes = client_lanes(chosen, CLIENTS)
    raw = columns(chosen.pairs, lanes, strings, names)
    rows = decoded(raw, strings.items())
    assert expected(history) == rows
    assert [lanes[row["process"]] for row in rows] == raw["lane"]


@settings(max_examples=examples(150), deadline=None)
@given(CALLS, st.integers(1, CLIENTS + 1))
def test_operations_in_a_lane_never_overlap(history, concurrency):
    chosen = select(history, (), 0)
    lanes = client_lanes(chosen, concurrency)
    by_lane = {}
    for pair in chosen.pairs:
        end = float("inf") if pair.completion is None else pair.completion.time
        by_lane.setdefault(lanes[pair.invoke.process], []).append((pair.invoke.time, end))
    for spans in by_lane.values():
        # several ops may have the same time
        for (_, end), (start, _) in itertools.pairwise(sorted(spans)):
            assert end <= start
    # Each client of the case has a lane, which is also used by the client's successors.
    if concurrency == CLIENTS:
        assert len({(process % CLIENTS, lane) for process, lane in lanes.items()}) == len(by_lane)


def test_mentions_are_names_and_ids_and_never_cut():
    many = [[f"t{n}", f"id{n}", 0] for n in range(2000)]
    found = mentioned({"name": "a", "new_name": "b", "table_id": "c", "tables": many})
    assert found[:3] == ["a", "b", "c"]
    assert len(found) == 3 + 4000
    assert mentioned([1]) == []
    assert mentioned({"name": 3, "tables": "t1"}) == []


def test_long_values_and_many_attempts_are_cut_and_said_to_be():
    attempts = tuple(Attempt("m1", n, n + 1, "ok") for n in range(ATTEMPTS_MAX + 5))
    history = History(
        [
            Op(0, 0, 0, OpType.INVOKE, "f", "x" * (VALUE_CHARS_MAX + 10)),
            Op(1, 9, 0, OpType.OK, "f", 1, attempts=attempts),
        ]
    )
    strings, names = Strings(), Strings()
    raw = columns(history.pairs, {0: 0}, strings, names)
    assert raw["values_cut"] == 1
    assert raw["attempts_cut"] == 5
    assert raw["attempts"] == [ATTEMPTS_MAX]
    assert strings.items()[raw["call"][0]].endswith("(12 more characters, in history.parquet)")


def test_values_get_their_share_between_two_bounds():
    assert share_chars(0) == VALUE_CHARS_MAX
    assert share_chars(100_000) == 240
    assert share_chars(10_000_000) == 120


def test_of_too_many_operations_the_named_and_the_nearest_stay():
    ops = []
    for n in range(100):
        ops += [Op(2 * n, n, 0, OpType.INVOKE, "f"), Op(2 * n + 1, n, 0, OpType.OK, "f")]
    history = History(ops)
    chosen = select(history, (3, 180), 100, most=12)
    kept = [pair.invoke.index for pair in chosen.pairs]
    # op 3 completes operation 2; the others are around op 100
    assert kept == [2, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108, 180]
    assert not chosen.complete
    assert chosen.total == 100
    assert select(history, (), 0).complete


def test_a_small_run_by_hand():
    history = small_run()
    chosen = select(history, (), 0)
    assert client_lanes(chosen, 10) == {0: 0, 1: 1, 2: 2, 3: 3}
    strings, names = Strings(), Strings()
    raw = columns(chosen.pairs, client_lanes(chosen, 10), strings, names)
    assert [TYPES[kind] for kind in raw["type"]] == [
        "ok", "info", "ok", "ok", "ok", "fail", "ok", "info",
    ]  # fmt: skip
    assert names.items() == ["", "t1", "aaaa1111", "t2", "t9", "t5", "bbbb2222"]
