"""The linearizability checker for metastores, on written histories and against brute force."""

from dataclasses import replace
from math import inf
from operator import methodcaller as do

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.hms.hints import hinted
from checkers.hms.linearizable import EXPLAINING, HmsLinearizable
from checkers.hms.model import Metastore, MetastoreInput, MetastoreOutput, OrderedMetastore
from checkers.hms.reading import metastore_history
from checkers.linearizability import UNKNOWN, Limits, Operation, Result, check_operations
from checkers.verdict.search import rest_of_core
from harness.errors import HistoryError
from harness.ops import History, OpType, Verdict
from harness.permits import (
    CHANGE_RENAMED,
    DDL_TWICE,
    DROP_MISSED,
    DROP_RENAMED,
    DROP_TWICE,
    TORN_GET,
    permitted_in,
)
from tests.hive.histories import HmsWriter, event, sent_to, table
from tests.support.orders import has_order
from tests.tiers import examples


def check(writer):
    return HmsLinearizable().check(History(writer.lines), None, time_limit_s=20.0)


def verdict(writer):
    return check(writer).verdict


# --- hand-written histories --------------------------------------------------------------------


def life(h):
    """Build a history that has each kind of operation once, in sequence."""
    h.done(0, "create", "d.x", "a")
    h.saw(1, "d.x", "a")
    h.refused(1, "create", "d.x", "b", "already-exists")
    h.done(0, "alter", "d.x", "c")
    h.done(0, "create", "e.y", "d")
    h.refused(1, "rename", "d.x", "e", "invalid-operation", "e.y")
    h.refused(1, "rename", "d.none", "f", "invalid-operation", "e.z")
    h.refused(1, "alter", "d.none", "g", "invalid-operation")
    h.done(0, "rename", "d.x", "h", "e.x")
    h.saw(1, "d.x", None)
    h.saw(1, "e.x", "h")
    h.listed(1, "e.x", "e.y")
    h.done(0, "drop", "e.x", "i")
    h.refused(1, "drop", "e.x", "j", "no-such-object")
    h.listed(1, "e.y")


def test_a_life_is_linearizable():
    h = HmsWriter()
    life(h)
    assert verdict(h) is Verdict.VALID


WRONG = {
    "the nonce of another change": lambda h: h.saw(2, "e.y", "a"),
    "a nonce that no call wrote": lambda h: h.saw(2, "e.y", "zzz"),
    "a nonce whose change was refused": lambda h: h.saw(2, "e.y", "b"),
    "a table that was dropped": lambda h: h.saw(2, "e.x", "h"),
    "nothing where there is a table": lambda h: h.saw(2, "e.y", None),
    "a list with too many": lambda h: h.listed(2, "e.x", "e.y"),
    "a list with too few": lambda h: h.listed(2),
    "a create over a table": lambda h: h.done(2, "create", "e.y", "q"),
    "a drop of nothing": lambda h: h.done(2, "drop", "e.x", "q"),
    "an alter of nothing": lambda h: h.done(2, "alter", "e.x", "q"),
    "a rename of nothing": lambda h: h.done(2, "rename", "e.x", "q", "d.x"),
    "a rename onto a table": lambda h: (
        h.done(2, "create", "d.x", "p"), h.done(2, "rename", "d.x", "q", "e.y"),
    ),
    "already there, but not": lambda h: h.refused(2, "create", "e.x", "q", "already-exists"),
    "not there, but is": lambda h: h.refused(2, "drop", "e.y", "q", "no-such-object"),
    "a rename refused for nothing": lambda h: h.refused(
        2, "rename", "e.y", "q", "invalid-operation", "d.x"
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_histories_are_found_and_explained(wrong):
    h = HmsWriter()
    life(h)
    wrong(h)
    found = check(h)
    assert found.verdict is Verdict.INVALID
    assert found.operations
    assert found.details["rule"]
    assert "no order" in found.explanation[0]


def test_lost_answers_explain_observed_changes():
    h = HmsWriter()
    h.gone(0, "create", "d.x", "a")
    h.saw(1, "d.x", None)
    h.saw(1, "d.x", "a")
    h.gone(2, "rename", "d.x", "b", "d.y")
    h.gone(3, "drop", "d.x", "c")
    h.saw(1, "d.x", None)
    h.saw(1, "d.y", None)  # so the table was dropped, or is not renamed yet
    assert verdict(h) is Verdict.VALID
    h.saw(1, "d.x", "a")
    assert verdict(h) is Verdict.INVALID


def test_a_lost_change_cannot_take_effect_twice():
    h = HmsWriter()
    h.gone(0, "create", "d.x", "a")
    h.saw(1, "d.x", "a")
    h.done(1, "drop", "d.x", "b")
    h.saw(1, "d.x", None)
    assert verdict(h) is Verdict.VALID
    h.saw(1, "d.x", "a")
    assert verdict(h) is Verdict.INVALID


def test_what_is_not_in_the_vocabulary_is_refused():
    for f, value in (("fly", {}), ("create", {"name": "x"}), ("create", None)):
        h = HmsWriter()
        h.call(0, f, value)
        with pytest.raises(HistoryError):
            check(h)
    h = HmsWriter()
    h.ok(0, "list", {}, {"tables": None})
    with pytest.raises(HistoryError):
        check(h)


# --- permits -----------------------------------------------------------------------------------


def permitting(*permits):
    h = HmsWriter()
    h.permitting(*((name, {}) for name in permits))
    return h


CREATED = do("done", 0, "create", "d.x", "a")
RENAMED = do("done", 1, "rename", "d.x", "c", "e.y")
DROP = do("start", 0, "drop", "d.x", "b")
END = do("end", 0)
CHANGED = [CREATED, do("start", 0, "alter", "d.x", "b"), RENAMED, END, do("saw", 2, "e.y", "b")]


def written(steps, *permits):
    return permitting(*permits).play(steps)


@pytest.mark.parametrize(
    ("permit", "steps"),
    [
        (DROP_TWICE, [CREATED, DROP, do("start", 1, "drop", "d.x", "c"), END, do("end", 1),
                      do("saw", 2, "d.x", None)]),
        (DROP_RENAMED, [CREATED, DROP, RENAMED, END, do("saw", 2, "d.x", None),
                        do("saw", 2, "e.y", None)]),
        (DROP_MISSED, [CREATED, DROP, RENAMED, END, do("saw", 2, "e.y", "c")]),
        (CHANGE_RENAMED, CHANGED),
        # a rename to its own name is an alter
        (CHANGE_RENAMED, [CREATED, do("start", 0, "rename", "d.x", "b", "d.x"), *CHANGED[2:]]),
        (TORN_GET, [CREATED, do("start", 1, "rename", "d.x", "c", "e.y"), do("saw", 2, "d.x", "c"),
                    do("end", 1)]),
        (DDL_TWICE, [do("start", 0, "create", "d.x", "a"),
                     do("end", 0, attempts=sent_to("hms1", "hms2")),
                     do("done", 0, "drop", "d.x", "b"), do("saw", 1, "d.x", "a")]),
    ],
)  # fmt: skip
def test_only_behaviour_of_the_profile_is_permitted(permit, steps):
    every = {*EXPLAINING}
    assert verdict(written(steps)) is Verdict.INVALID
    assert verdict(written(steps, *sorted(every - {permit}))) is Verdict.INVALID
    for permits in ([permit], sorted(every)):
        found = check(written(steps, *permits))
        assert found.verdict is Verdict.PERMITTED
        assert permitted_in(found) == {permit: 1}
    more = written(steps, *sorted(every))
    more.saw(5, "d.z", "never written")
    assert verdict(more) is Verdict.INVALID


def test_a_get_that_shows_a_change_of_another_table_names_that_change():
    told = check(written(CHANGED)).explanation
    assert any("It saw this change: Process 0 altered d.x (op " in line for line in told)


def test_the_state_before_the_failing_operation_is_described():
    h = HmsWriter()
    h.done(0, "create", "d.x", "a")
    h.saw(1, "d.x", "a")
    h.done(2, "create", "d.x", "b")
    found = check(h)
    assert found.explanation[1] == (
        "Before op 4, in every possible order, table d.x existed; op 2 was the last to see it."
    )
    h.saw(1, "d.x", "never written")
    text = " ".join(check(h).explanation)
    assert "(b)" not in text
    assert "None" not in text


def test_a_long_core_shows_its_last_operations_and_counts_the_rest():
    sentences = {index: f"Op {index} came" for index in range(9)}
    text = rest_of_core((7, *range(6)), sentences, minimal=True)
    assert text[1:] == [
        "Op 3 came.",
        "Op 4 came.",
        "Op 5 came.",
        "The contradiction also needs 3 earlier operations: ops 0, 1 and 2.",
    ]


@pytest.mark.parametrize(
    ("permits", "steps"),
    [
        # the two drops do not overlap
        ([DROP_TWICE], [CREATED, DROP, END, do("done", 1, "drop", "d.x", "c")]),
        # the first drop was of another table
        (EXPLAINING, [do("done", 0, "create", "d.z", "a"), DROP, do("start", 1, "drop", "d.z", "c"),
                      END, do("end", 1)]),
        # a get may show a change in progress, but not a later one
        ([TORN_GET], [CREATED, do("saw", 2, "d.x", "c"), RENAMED]),
        # the change was sent only once
        ([DDL_TWICE], [do("start", 0, "create", "d.x", "a"), do("end", 0, attempts=sent_to("hms1")),
                       do("done", 0, "drop", "d.x", "b"), do("saw", 1, "d.x", "a")]),
    ],
)  # fmt: skip
def test_near_misses_of_permitted_histories_are_not_permitted(permits, steps):
    assert verdict(written(steps, *permits)) is Verdict.INVALID


def test_two_renames_at_once_may_each_give_one_part_of_the_name():
    steps = [CREATED, do("start", 0, "rename", "d.x", "b", "d.y"),
             do("done", 1, "rename", "d.x", "c", "e.x"), END, do("listed", 2, "e.y")]  # fmt: skip
    assert verdict(written(steps, *EXPLAINING[:-2])) is Verdict.INVALID
    assert permitted_in(check(written(steps, *EXPLAINING))) == {CHANGE_RENAMED: 1}
    steps[-1] = do("listed", 2, "d.x")
    assert verdict(written(steps, *EXPLAINING)) is Verdict.INVALID


def test_a_rename_follows_its_table_through_renames_that_began_before_it():
    late = do("start", 1, "rename", "d.x", "c", "e.y")
    moved = do("done", 2, "rename", "d.x", "d", "d.y")
    steps = [CREATED, late, moved, do("start", 3, "rename", "d.y", "e", "d.x"), do("end", 1),
             do("end", 3), do("listed", 4, "e.x")]  # fmt: skip
    assert verdict(written(steps)) is Verdict.INVALID
    assert verdict(written(steps, CHANGE_RENAMED)) is Verdict.PERMITTED


def test_a_drop_misses_a_table_that_a_late_rename_takes_from_its_new_name():
    late = do("start", 1, "rename", "d.x", "c", "e.x")
    moved = do("done", 2, "rename", "d.x", "d", "d.y")
    steps = [CREATED, late, moved, do("start", 3, "drop", "d.y", "e"), do("end", 1), do("end", 3),
             do("listed", 4, "e.y")]  # fmt: skip
    assert verdict(written(steps, CHANGE_RENAMED)) is Verdict.INVALID
    assert verdict(written(steps, CHANGE_RENAMED, DROP_MISSED)) is Verdict.PERMITTED


def test_two_drops_of_one_table_meet_although_it_was_renamed_between_their_reads():
    steps = [CREATED, DROP, RENAMED, do("start", 2, "drop", "e.y", "d"), END, do("end", 2)]
    assert verdict(written(steps, DROP_TWICE)) is Verdict.INVALID
    assert permitted_in(check(written(steps, DROP_RENAMED, DROP_TWICE))) == {
        DROP_TWICE: 1,
        DROP_RENAMED: 1,
    }


@pytest.mark.parametrize("logged", [True, False])
def test_permitted_behaviour_is_found_among_lost_changes(logged):
    h = permitting(*EXPLAINING)
    h.gone(7, "rename", "d.x", "r", "e.y")
    h.gone(8, "create", "e.y", "s")
    h.done(0, "create", "d.x", "a")
    h.start(0, "drop", "d.x", "b")
    h.start(1, "drop", "d.x", "c")
    h.end(0)
    h.end(1)
    h.saw(2, "d.x", None)
    h.listed(3)
    rows = [event(1, "CREATE", None, ("d.x", "a")), event(2, "DROP", ("d.x", "a"))]
    if logged:
        h.snapshot(events=[*rows, event(3, "DROP", ("d.x", "a"))], next_event=4)
    assert permitted_in(check(h)) == {DROP_TWICE: 1}


@pytest.mark.parametrize("logged", [True, False])
def test_a_lost_rename_may_be_what_came_meanwhile(logged):
    h = permitting(*EXPLAINING)
    h.done(0, "create", "d.x", "a")
    h.gone(1, "rename", "d.x", "r", "e.y")
    h.done(0, "alter", "d.x", "b")
    h.saw(2, "e.y", "b")
    rows = [
        event(1, "CREATE", None, ("d.x", "a")),
        event(2, "ALTER", ("d.x", "a"), ("e.y", "r")),
        event(3, "ALTER", ("d.x", "a"), ("d.x", "b")),
    ]
    if logged:
        h.snapshot([["e.y", 1, "b"]], rows, 4)
    assert permitted_in(check(h)) == {CHANGE_RENAMED: 1}


# --- the oracle --------------------------------------------------------------------------------


NAMES = ("d.x", "d.y")


def plays(pairs):
    """Whether some order explains the history; tries all orders on a dictionary."""
    items = [(p[4], p[5], p) for p in pairs if p[3] is not None or p[1] not in {"get", "list"}]
    return has_order(items, {}, after)


def after(state, pair):
    then = _apply(state, pair)
    return [] if then is None else [then]


def _apply(state, pair):
    value, f, nonce, answer = pair[0], pair[1], pair[2], pair[3]
    if f == "list":
        return state if sorted(state) == answer["tables"] else None
    name = f"{value['database']}.{value['name']}"
    if f == "get":
        seen = answer.get("nonce") if answer["result"] == "ok" else None
        return state if state.get(name) == seen else None
    new = f"{value.get('new_database')}.{value.get('new_name')}"
    after, result = dict(state), "ok"
    if f == "create":
        if name in state:
            result = "already-exists"
        after[name] = nonce
    elif name not in state:
        result = "no-such-object" if f == "drop" else "invalid-operation"
    elif f == "alter":
        after[name] = nonce
    elif f == "drop":
        del after[name]
    elif new in state and new != name:
        result = "invalid-operation"
    else:
        del after[name]
        after[new] = nonce
    if answer is not None and answer["result"] != result:
        return None
    return after if result == "ok" else state


@st.composite
def histories(draw):
    h, pairs, open_ones = HmsWriter(), [], {}
    nonces = []
    for number in range(draw(st.integers(2, 7))):
        process = draw(st.integers(0, 2))
        if process in open_ones:
            finish(draw, h, pairs, open_ones, process, nonces)
        f = draw(st.sampled_from(["create", "alter", "rename", "drop", "get", "list"]))
        name, new = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
        nonce = f"n{number}" if f not in {"get", "list"} else None
        value = {} if f == "list" else table(name, nonce, new if f == "rename" else None)
        retired = 10 * sum(op.type is OpType.INFO for op in h.lines if op.process != process)
        actor = process + 100 * number + retired
        index = h.call(actor, f, value)
        if nonce is not None:
            nonces.append(nonce)
        open_ones[process] = (actor, f, value, nonce, index)
    for process in list(open_ones):
        finish(draw, h, pairs, open_ones, process, nonces)
    return h, pairs


def finish(draw, h, pairs, open_ones, process, nonces):
    actor, f, value, nonce, index = open_ones.pop(process)
    if draw(st.integers(0, 4)) == 0:
        at = h.add(actor, OpType.INFO, f, None)
        pairs.append((value, f, nonce, None, index, float("inf")))
        return
    if f == "list":
        answer = {"result": "ok", "tables": sorted(draw(st.sets(st.sampled_from(NAMES))))}
    elif f == "get":
        seen = draw(st.sampled_from([None, *nonces]))
        answer = {"result": "no-such-object"} if seen is None else {"result": "ok", "nonce": seen}
    else:
        refusal = {"create": "already-exists", "drop": "no-such-object"}
        answer = {"result": draw(st.sampled_from(["ok", refusal.get(f, "invalid-operation")]))}
    is_ok = answer["result"] == "ok" or f in {"get", "list"}
    at = h.add(actor, OpType.OK if is_ok else OpType.FAIL, f, answer, "hms1")
    pairs.append((value, f, nonce, answer, index, at))


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(histories())
def test_the_checker_agrees_with_trying_every_order(made):
    h, pairs = made
    wanted = Verdict.VALID if plays(pairs) else Verdict.INVALID
    if not metastore_history(History(h.lines)).operations:
        return
    assert check(h).verdict is wanted


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(histories(), st.lists(st.integers(0, 6), max_size=6), st.integers(0, 3))
def test_what_a_log_says_changes_no_verdict(made, logged, drops):
    h, pairs = made
    if not metastore_history(History(h.lines)).operations:
        return
    rows = [event(n, "ALTER", ("d.x", "?"), ("d.x", f"n{nonce}")) for n, nonce in
            enumerate(logged, start=1)]  # fmt: skip
    rows += [event(len(rows) + n, "DROP", ("d.x", "?")) for n in range(1, drops + 1)]
    h.snapshot(events=rows, next_event=len(rows) + 1)
    assert verdict(h) is (Verdict.VALID if plays(pairs) else Verdict.INVALID)


def test_lost_changes_are_placed_as_the_log_has_them():
    h = HmsWriter()
    first = h.done(0, "create", "d.x", "a")
    seen = h.gone(1, "create", "d.y", "b")
    h.gone(2, "create", "d.z", "c")  # the log does not have this create
    h.gone(3, "drop", "d.x", "d")
    drop = h.gone(4, "drop", "d.y", "e")
    last = h.done(0, "create", "d.w", "f")
    rows = [
        event(1, "CREATE", None, ("d.x", "a")),
        event(2, "CREATE", None, ("d.y", "b")),
        event(3, "CREATE", None, ("d.w", "f")),
        event(4, "DROP", ("d.y", "b")),
    ]
    without = History(h.lines)
    assert hinted(metastore_history(without), without) is None
    h.snapshot([["d.x", 1, "a"]], rows, 5)
    history = History(h.lines)
    found = {one.id: one for one in hinted(metastore_history(history), history)}
    assert [*found] == [first, seen, drop, last]
    assert found[seen].return_time == found[last].return_time
    assert found[last].call == last
    assert found[drop].is_unknown
    assert [one.input.place for one in found.values()] == [1, 2, 0, 3]
    h.snapshot([["d.x", 1, "a"]], rows[1:], 5)  # the log was cleaned, so it proves nothing
    cleaned = History(h.lines)
    assert hinted(metastore_history(cleaned), cleaned) is None


def test_duplicates_in_the_log_are_ambiguous_but_not_missing():
    h = HmsWriter()
    h.done(0, "create", "d.x", "a")
    twice = h.gone(1, "alter", "d.x", "b", sent=2)
    h.saw(2, "d.x", "b")
    h.done(0, "alter", "d.x", "c")
    rows = [
        event(1, "CREATE", None, ("d.x", "a")),
        event(2, "ALTER", ("d.x", "a"), ("d.x", "b")),
        event(3, "ALTER", ("d.x", "b"), ("d.x", "c")),
        event(4, "ALTER", ("d.x", "c"), ("d.x", "b")),
    ]
    h.snapshot([["d.x", 1, "b"]], rows, 5)
    history = History(h.lines)
    before = {one.id: one for one in metastore_history(history).operations}
    found = {one.id: one for one in hinted(metastore_history(history), history)}
    assert found[twice] == before[twice]
    assert [*found] == [*before]


def lost_at_once(count, order):
    """Build concurrent creates without answers, lists that show ever more of them, and a log."""
    h = HmsWriter()
    numbers = range(count)
    for number in numbers:
        h.gone(number + 1, "create", f"d.t{number:02}", f"c{number}")
    for seen in (3, 7, count):
        h.listed(0, *sorted(f"d.t{number:02}" for number in numbers[:seen]))
    h.done(0, "create", "d.last", "z")
    names = [(f"d.t{number:02}", f"c{number}") for number in order]
    rows = [event(n, "CREATE", None, one) for n, one in enumerate(names, start=1)]
    rows.append(event(count + 1, "CREATE", None, ("d.last", "z")))
    h.snapshot([], rows, count + 2)
    return h


@pytest.mark.parametrize(
    ("order", "wanted"), [(range(20), Verdict.VALID), (range(19, -1, -1), Verdict.UNKNOWN)]
)
def test_the_order_of_the_log_spares_a_search_of_all_subsets(order, wanted):
    checker = HmsLinearizable(limits=Limits(steps=100_000))
    h = lost_at_once(20, order)
    assert checker.check(History(h.lines), None, time_limit_s=60.0).verdict is wanted


def test_a_wrong_order_in_the_log_never_convicts():
    assert verdict(lost_at_once(8, range(7, -1, -1))) is Verdict.VALID


def in_order(operations):
    """Whether some order of all completed operations is legal; tries all orders."""

    def after(state, one):
        last, tables = state
        if one.input.place not in {0, last + 1}:
            return []
        legal, then = Metastore().step(
            tables, one.input, one.output if one.input.place else one.said
        )
        return [(one.input.place or last, then)] if legal else []

    items = [(one.call, inf if one.is_unknown else one.return_time, one) for one in operations]
    return has_order(items, (0, ()), after)


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(histories(), st.data())
def test_changes_that_have_a_place_are_done_in_that_order(made, data):
    h, _ = made
    operations = [*metastore_history(History(h.lines)).operations]
    changes = [one for one in operations if not Metastore().read_only(one.input, one.said)]
    placed = data.draw(st.lists(st.sampled_from(changes), unique_by=id)) if changes else []
    for number, change in enumerate(placed, start=1):
        at = operations.index(change)
        given_ = change.input._replace(place=number)
        operations[at] = replace(change, input=given_, output=MetastoreOutput("ok"))
    outcome = check_operations(OrderedMetastore(), operations, explained=False)
    assert outcome.result is (Result.OK if in_order(operations) else Result.ILLEGAL)


def test_a_place_is_behind_those_of_other_names():
    def create(number, name, return_time):
        change = MetastoreInput("create", name, place=number)
        return Operation(number, change, number, MetastoreOutput("ok"), return_time, number)

    outcome = check_operations(OrderedMetastore(), [create(1, "d.x", None), create(2, "d.y", 3)])
    assert outcome.witness == ((1, 2),)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(histories())
def test_permits_never_convict(made):
    h, _ = made
    strict = verdict(h)
    h.permitting(*((name, {}) for name in EXPLAINING))
    lax = verdict(h)
    assert lax is strict or (strict, lax) == (Verdict.INVALID, Verdict.PERMITTED)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(histories())
def test_the_model_is_consistent(made):
    h, pairs = made
    found = metastore_history(History(h.lines)).operations
    model = Metastore()
    state = model.init()
    for operation in found:
        legal, after = model.step(state, operation.input, operation.said)
        if model.read_only(operation.input, operation.said):
            assert after == state
        if operation.said is UNKNOWN:
            assert legal
        state = after if legal else state
    if plays(pairs):
        assert verdict(h) in {Verdict.VALID, Verdict.UNKNOWN}
