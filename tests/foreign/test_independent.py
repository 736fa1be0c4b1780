"""Histories with values [key value], compared with all possible orders."""

import itertools
from math import inf

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cli import main
from harness.errors import (
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    EXIT_VALID,
    HistoryError,
    UsageError,
)
from harness.exact import exact, whole_number
from harness.independent import Shape, shape_of
from harness.ops import History, ModelSettings, Verdict
from harness.registry import load_plugin
from harness.verdict.coverage import weighed
from tests.support.histories import written
from tests.support.orders import has_order
from tests.tiers import examples

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def judged(model, lines, **settings_):
    """Return the verdict as the command reports it; `unknown` if too little was observed."""
    history = History(written(*lines), foreign=True)
    check = load_plugin("checkers", model).prepare(history, ModelSettings(**settings_))
    return weighed(check.check(time_limit_s=300, draw=True)[0])


def did(process, f, value, answer=None):
    return [(f"{process}!", f, value), (f"{process}+", f, value if answer is None else answer)]


# --- the oracle --------------------------------------------------------------------------------


def after(state, operation):
    f, value, answer = operation
    if f == "write":
        return [value]
    if f == "cas":
        return [value[1]] if state == value[0] else []
    return [state] if answer is None or answer == state else []


VALUES = (None, 0, 1)


@st.composite
def registers(draw):
    """Draw a history of one or two keys; return its lines, and the operations per key."""
    lines, keys = [], {0: [], 1: []}
    opened = {}
    for _ in range(draw(st.integers(2, 12))):
        process = draw(st.integers(0, 2))
        if process not in opened:
            key, f = draw(st.integers(0, 1)), draw(st.sampled_from(["read", "write", "cas"]))
            value = {
                "read": st.none(),
                "write": st.sampled_from(VALUES[1:]),
                "cas": st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES[1:])),
            }[f]
            value = draw(value)
            value = list(value) if f == "cas" else value
            opened[process] = (len(lines), key, f, value)
            lines.append((f"{process}!", f, [key, value]))
            continue
        call, key, f, value = opened.pop(process)
        kind = draw(st.sampled_from("+++-?"))
        answer = draw(st.sampled_from(VALUES)) if f == "read" and kind == "+" else value
        if kind == "+":
            keys[key].append((call, len(lines), (f, value, answer)))
        elif kind == "?" and f != "read":
            keys[key].append((call, inf, (f, value, None)))
        lines.append((f"{process}{kind}", f, [key, answer]))
    for call, key, f, value in opened.values():
        if f != "read":
            keys[key].append((call, inf, (f, value, None)))
    return lines, keys


@settings(max_examples=examples(300), deadline=None)
@given(registers())
def test_keyed_registers_are_valid_where_one_initial_value_explains_all_keys(drawn):
    lines, keys = drawn
    expected = {
        initial: all(has_order(operations, initial, after) for operations in keys.values())
        for initial in (0, None, 1)
    }
    for initial, valid in expected.items():
        result = judged("cas-register", lines, independent=True, initial=initial)
        assert (result.verdict is not INVALID) is valid, result
    result = judged("cas-register", lines, independent=True)
    assert (result.verdict is not INVALID) is (expected[0] or expected[None]), result
    if result.verdict is VALID:
        assert expected[{"0": 0, "nil": None}[result.details.get("initial", "0")]]
    # Undecided only after a wildcard read, without any observation, or with an exempt key.
    ended = [what for each in keys.values() for _, end, what in each if end != inf]
    answers = [answer for f, _, answer in ended if f == "read"]
    seen = [f for f, _, _ in ended if f == "cas"]
    if result.verdict is UNKNOWN:
        assert None in answers or not (answers or seen) or result.details["exempt"]["keys"]


def lifted(histories):
    """Merge histories of several objects into one, in which each value becomes [key, value]."""
    turns = itertools.zip_longest(*histories)
    return [
        (f"{int(who[:-1]) + 10 * key}{who[-1]}", f, [key, value])
        for turn in turns
        for key, line in enumerate(turn)
        if line is not None
        for who, f, value in [line]
    ]


LOCKED = [*did(0, "acquire", None), *did(0, "release", None), *did(1, "acquire", None)]
TWICE = [*did(0, "acquire", None), *did(1, "acquire", None)]
HELD = [*did(0, "add", 1), *did(1, "read", None, [1])]
LOST = [*did(0, "add", 1), *did(0, "add", 2), *did(1, "read", None, [1])]
UNREAD = [*did(0, "add", 1), *did(0, "add", 2)]
FIFO = [*did(0, "enqueue", 1), *did(0, "enqueue", 2), *did(1, "dequeue", None, 1)]
LIFO = [*did(0, "enqueue", 1), *did(0, "enqueue", 2), *did(1, "dequeue", None, 2)]
WROTE = [*did(0, "write", 3), *did(1, "read", None, 3)]
STALE = [*did(0, "write", 3), *did(1, "read", None, 3), *did(1, "read", None, 0)]
APPENDED = did(0, "txn", [["append", "x", 1]]) + did(
    1, "txn", [["r", "x", None]], [["r", "x", [1]]]
)
VANISHED = APPENDED + did(1, "txn", [["r", "x", None]], [["r", "x", []]])


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        ("mutex", LOCKED, TWICE),
        ("set", HELD, LOST),
        ("queue", FIFO, LIFO),
        ("unordered-queue", FIFO, [*LIFO, *did(1, "dequeue", None, 2)]),
        ("register", WROTE, STALE),
        ("cas-register", WROTE, STALE),
        ("etcd-cas-register", WROTE, STALE),
        ("list-append", APPENDED, VANISHED),
    ],
)
@pytest.mark.parametrize("flag", [None, True])
def test_keys_are_judged_apart_and_the_worst_decides(model, good, bad, flag):
    result = judged(model, lifted([good, good, good]), independent=flag)
    assert (result.verdict, result.details["keys"]) == (VALID, 3)
    result = judged(model, lifted([good, bad, good]), independent=flag)
    assert (result.verdict, result.details["invalid_keys"]) == (INVALID, ["1"])
    assert result.reason.startswith("key 1: ")
    assert any(line.startswith("Key 1: ") for line in result.explanation)
    by_key = {index: line[2][0] for index, line in enumerate(lifted([good, bad, good]))}
    assert {by_key[index] for index in result.operations} == {1}


ACTIONS = {
    "mutex": ([("acquire", None), ("release", None)], {}),
    "set": ([("add", 1), ("add", 2), ("read", None)], {"read": [[], [1], [1, 2]]}),
    "queue": ([("enqueue", 1), ("enqueue", 2), ("dequeue", None)], {"dequeue": [1, 2]}),
    "unordered-queue": ([("enqueue", 1), ("enqueue", 2), ("dequeue", None)], {"dequeue": [1, 2]}),
}


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from(sorted(ACTIONS)))
def test_the_verdict_is_the_worst_of_all_keys(data, model):
    asked, answers = ACTIONS[model]

    def history():
        lines = []
        for process in data.draw(st.lists(st.integers(0, 2), max_size=4)):
            f, value = data.draw(st.sampled_from(asked))
            answer = data.draw(st.sampled_from(answers[f])) if f in answers else value
            lines += [(f"{process}!", f, value), (f"{process}+", f, answer)]
        return lines

    parts = [part for part in (history(), history()) if part]
    lines = lifted(parts)
    single = [judged(model, part) for part in parts]
    found = judged(model, lines, independent=True)
    convicted = any(result.verdict is INVALID for result in single)
    assert (found.verdict is INVALID) is convicted
    if found.verdict is VALID:
        assert any(result.verdict is VALID for result in single)
    # without the option, a history that separate keys explain is not called invalid
    seen = judged(model, lines)
    if shape_of(History(written(*lines)).pairs) is not Shape.NO:
        assert seen.verdict is not INVALID or convicted


def test_an_initial_value_is_one_for_all_keys():
    nil_first = did(0, "cas", [None, 1])
    zero_first = did(0, "read", None, 0)
    assert judged("cas-register", lifted([nil_first, nil_first])).verdict is VALID
    assert judged("cas-register", lifted([zero_first, zero_first])).verdict is VALID
    assert judged("cas-register", lifted([nil_first, zero_first]), independent=True).verdict is (
        INVALID
    )


def test_unchecked_keys_are_counted():
    result = judged("set", lifted([HELD, UNREAD]))
    assert (result.verdict, result.details["exempt"]["keys"]) == (VALID, 1)
    assert judged("set", lifted([HELD, UNREAD, UNREAD, UNREAD])).verdict is UNKNOWN
    assert judged("set", lifted([UNREAD, UNREAD]), independent=True).verdict is UNKNOWN
    refused = [("0!", "acquire", None), ("0-", "acquire", None)]
    open_ = [("0!", "acquire", None)]
    assert judged("mutex", lifted([refused, open_])).verdict is UNKNOWN


# --- whether values have the form [key value] --------------------------------------------------

PAIRS = [*did(0, "add", [1, 2]), *did(0, "add", [1, 3]), *did(0, "add", [2, 1])]


@pytest.mark.parametrize(
    ("lines", "shape"),
    [
        ([*PAIRS, *did(1, "read", None, [[1, 2], [1, 3]])], Shape.NO),
        ([*PAIRS, *did(1, "read", [1, None], [1, [2, 3]])], Shape.SURE),
        (PAIRS, Shape.MAYBE),
        ([*PAIRS, *did(1, "read", [1, None], [2, [2, 3]])], Shape.NO),  # the answer has another key
        ([*PAIRS, *did(1, "read", [[1], None], [[1], [2, 3]])], Shape.NO),
        ([*PAIRS, *did(1, "read", [True, None], [1, [2, 3]])], Shape.NO),
        (did(0, "acquire", [1, None]) + did(0, "acquire", [2, None]), Shape.MAYBE),
        (did(0, "put", [1, "a"]) + did(0, "get", [1, None], [1, "a"]), Shape.SURE),
        ([("0!", "add", [1, 2]), ("0?", "add", None)], Shape.MAYBE),
        ([], Shape.NO),
    ],
)
def test_the_shape_of_values_is_seen(lines, shape):
    assert shape_of(History(written(*lines)).pairs) is shape


def test_what_breaks_a_sure_reading_is_refused_and_not_read_otherwise():
    lines = [*PAIRS, *did(1, "read", [1, None], [1, [2, 3]]), *did(1, "read", [2, None], [2, 9])]
    with pytest.raises(HistoryError, match=r"^op 9 is 'read'"):
        judged("set", lines)


def test_keys_share_the_time():
    lines = lifted([rounds(0, 1, 2), rounds(0, 1, None)])
    history = History(written(*lines))
    check = load_plugin("checkers", "register").prepare(history, ModelSettings())
    assert check.check(time_limit_s=0.0, draw=False)[0].verdict in {VALID, UNKNOWN}


def test_a_set_of_pairs_stays_one():
    whole = [*PAIRS, *did(1, "read", None, [[1, 2], [1, 3], [2, 1]])]
    assert judged("set", whole).verdict is VALID
    assert "keys" not in judged("set", whole).details
    assert judged("set", [*PAIRS, *did(1, "read", None, [[1, 2]])]).verdict is INVALID


def test_a_map_of_strings_is_no_tuple():
    lines = did(0, "put", [1, "a"]) + did(0, "get", [1, None], [1, "a"])
    assert "keys" not in judged("kv-string", lines).details
    nested = did(0, "put", [7, [1, "a"]]) + did(0, "get", [7, [1, None]], [7, [1, ""]])
    assert judged("kv-string", nested).details["invalid_keys"] == ["7"]


def test_where_both_readings_differ_the_verdict_says_which_option_decides():
    """The values [owner token] can mean several locks (tuples), or one lock with plain values."""
    lines = [*did(0, "acquire", [0, 7]), *did(1, "acquire", [1, 8]), *did(0, "release", [0, 7])]
    result = judged("mutex", lines)
    assert (result.verdict, result.details["rule"]) == (UNKNOWN, "tuples-or-values")
    assert "--independent" in result.reason
    assert "--no-independent" in result.reason
    assert judged("mutex", lines, independent=True).verdict is VALID
    assert judged("mutex", lines, independent=False).verdict is INVALID
    agreed = [*did(0, "acquire", [0, 7]), *did(0, "release", [0, 7])]
    assert judged("mutex", agreed).verdict is VALID
    assert judged("mutex", [*agreed, *did(0, "release", [0, 7])]).verdict is INVALID


def test_only_tuples_are_accepted_where_tuples_are_required():
    with pytest.raises(HistoryError, match=r"^op 1 is 'read' with the value \[1\]; with --indep"):
        judged("set", HELD[2:], independent=True)
    with pytest.raises(HistoryError, match=r"^op 1 completes an operation on the key 1"):
        judged("set", did(0, "read", [1, None], [2, []]), independent=True)
    with pytest.raises(HistoryError, match=r"say --independent$"):
        judged("register", did(0, "read", None, [1, 5]))
    assert judged("register", did(0, "read", None, [1, 0]), independent=True).verdict is VALID
    with pytest.raises(UsageError, match="means nothing to the model catalog"):
        judged("catalog", [], independent=True)


def test_keys_of_several_kinds_are_several_keys():
    lines = [*did(0, "write", [1, 5]), *did(0, "read", [1, None], [1, 5])]
    others = [*did(1, "read", ["1", None], ["1", 0]), *did(1, "read", [1.0, None], [1.0, 0])]
    result = judged("register", [*lines, *others, *did(1, "read", [True, None], [True, 0])])
    assert (result.verdict, result.details["keys"]) == (VALID, 4)


# --- initial values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "lines", "initial", "verdict"),
    [
        ("register", did(0, "read", None, 5), 5, VALID),
        ("register", did(0, "read", None, 5), 5.0, INVALID),
        ("register", did(0, "read", None, True), 1, INVALID),
        ("register", did(0, "read", None, 0), None, INVALID),
        ("register", did(0, "read", None, 5) + did(0, "read", None, 6), 5, INVALID),
        ("etcd-cas-register", [("0!", "read", None), ("0+", "read", None)], 3, INVALID),
        ("etcd-cas-register", did(0, "read", None, 3), 3, VALID),
        ("multi-register", did(0, "txn", [["read", "z", 4]]), 4, VALID),
        ("multi-register", did(0, "txn", [["read", "z", 4]]), {"z": 4}, VALID),
        ("multi-register", did(0, "txn", [["read", ":z", 4]]), {"z": 4}, VALID),
        ("multi-register", did(0, "txn", [["read", 1, 4]]), {"1": 4}, VALID),
        ("multi-register", did(0, "txn", [["read", "z", 0]]), {"x": 0}, INVALID),
        ("kv-string", did(0, "get", ["a", None], ["a", "x"]), "x", VALID),
        ("kv-string", did(0, "get", ["a", None], ["a", ""]), "x", INVALID),
        ("kv-string", did(0, "get", ["a", None], ["a", "x"]), {"a": "x"}, VALID),
        ("kv-string", did(0, "get", ["b", None], ["b", "x"]), {"a": "x"}, INVALID),
        (
            "kv-string",
            did(0, "append", ["a", "y"]) + did(0, "get", ["a", None], ["a", "xy"]),
            "x",
            VALID,
        ),
    ],
)
def test_the_user_declares_the_initial_value(model, lines, initial, verdict):
    assert judged(model, lines, initial=initial).verdict is verdict


def test_an_initial_string_counts_where_keys_are_only_put_and_got():
    lines = [*did(0, "get", ["a", None], ["a", "x"]), *did(0, "put", ["a", "y"])]
    assert judged("kv-string", lines, initial="x").verdict is VALID
    assert judged("kv-string", lines, initial={"a": "x"}).verdict is VALID
    assert judged("kv-string", lines, initial="z").verdict is INVALID
    assert judged("kv-string", lines).verdict is INVALID


@pytest.mark.parametrize("model", ["mutex", "set", "queue", "catalog", "list-append"])
def test_models_with_a_fixed_start_take_no_initial_value(model):
    with pytest.raises(UsageError, match="--initial is 0"):
        judged(model, [], initial=0)


@pytest.mark.parametrize(
    ("model", "initial"), [("register", [1]), ("kv-string", 1), ("multi-register", {"x": [1]})]
)
def test_an_initial_value_that_nothing_can_hold_is_refused(model, initial):
    with pytest.raises(UsageError, match="--initial is"):
        judged(model, [], initial=initial)


def test_the_reason_names_assumptions():
    assert judged("register", did(0, "read", None, 0)).details["initial"] == "0"
    assert judged("cas-register", did(0, "cas", [None, 1])).details["initial"] == "nil"
    wrong = judged("cas-register", did(0, "cas", [None, 1]) + did(0, "read", None, 9))
    assert wrong.verdict is INVALID
    assert wrong.explanation[-1].startswith("Initial values tried: 0 and nil;")
    both = did(0, "read", None, 0) + did(0, "cas", [None, 1])
    assert judged("cas-register", both).verdict is INVALID


# --- wildcards ---------------------------------------------------------------------------------

NIL = [("1!", "read", None), ("1+", "read", None)]


def rounds(*answers):
    return [
        line
        for number, answer in enumerate(answers)
        for line in [*did(0, "write", number), ("1!", "read", None), ("1+", "read", answer)]
    ]


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (rounds(0, *[None] * 198), UNKNOWN),  # a store that lost everything
        (rounds(0, 1, None), VALID),
        (rounds(0, None, None), UNKNOWN),
        ([*NIL, *NIL, *NIL, *rounds(0)], VALID),  # initially nil, like Jepsen's registers
        # initially 0, so these reads observed nothing
        (
            [*did(0, "read", None, 0), *NIL, *NIL],
            UNKNOWN,
        ),
        ([*NIL, *did(0, "cas", [None, 3]), *did(0, "read", None, 3)], VALID),
    ],
)
def test_reads_that_match_anything_are_not_looked_at(lines, verdict):
    result = judged("cas-register", lines)
    assert result.verdict is verdict
    if verdict is UNKNOWN:
        assert result.details["rule"] == "exempt"


def test_wildcards_of_multi_registers_are_counted_by_key():
    def read(key, value):
        return did(1, "txn", [["read", key, None]], [["read", key, value]])

    wrote = did(0, "txn", [["write", "x", 1]])
    assert judged("multi-register", [*wrote, *read("x", 1), *read("y", None)]).verdict is VALID
    lost = [*wrote, *read("x", 1), *read("x", None), *read("x", None)]
    assert judged("multi-register", lost).verdict is UNKNOWN


# --- exact values ------------------------------------------------------------------------------


def test_keys_of_a_map_of_strings_are_exact():
    lines = [
        line
        for key in (1, "1", 1.0, True)
        for line in [
            *did(0, "put", [key, repr(key)]),
            *did(1, "get", [key, None], [key, repr(key)]),
        ]
    ]
    reads = [
        line for key in (1, "1", 1.0, True) for line in did(1, "get", [key, None], [key, repr(key)])
    ]
    assert judged("kv-string", [*lines, *reads]).verdict is VALID


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from([0.0, 1.0, "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


@given(JSON, JSON)
def test_values_are_equal_where_their_canonical_texts_are(one, other):
    encode = msgspec.json.Encoder(order="sorted").encode
    assert (exact(one) == exact(other)) is (encode(one) == encode(other))
    if exact(one) == exact(other):
        assert hash(exact(one)) == hash(exact(other))


# --- the command -------------------------------------------------------------------------------


def test_the_command_takes_the_deciding_options(tmp_path, capsys):
    path = tmp_path / "h.edn"
    line = "{{:process {}, :type :{}, :f :{}, :value {}}}\n".format
    path.write_text(
        line(0, "invoke", "acquire", "[0 7]")
        + line(0, "ok", "acquire", "[0 7]")
        + line(1, "invoke", "acquire", "[1 8]")
        + line(1, "ok", "acquire", "[1 8]")
        + line(0, "invoke", "release", "[0 7]")
        + line(0, "ok", "release", "[0 7]")
    )
    assert main(["check", str(path)]) == EXIT_UNKNOWN
    assert main(["check", str(path), "--independent"]) == EXIT_VALID
    plain = ["--no-independent", "--model", "mutex", "--html", str(tmp_path)]
    assert main(["check", str(path), *plain]) == EXIT_INVALID
    path.write_text(line(0, "invoke", "read", "nil") + line(0, "ok", "read", "0.5M"))
    assert main(["check", str(path)]) == EXIT_INVALID
    assert main(["check", str(path), "--initial", "0.5M"]) == EXIT_VALID
    assert main(["check", str(path), "--initial", "0.5"]) == EXIT_INVALID
    path.write_text(line(0, "invoke", "read", "nil") + line(0, "ok", "read", '":a"'))
    assert main(["check", str(path), "--initial", '":a"']) == EXIT_VALID
    assert main(["check", str(path), "--initial", ":a"]) == EXIT_INVALID
    capsys.readouterr()
    assert main(["check", str(path), "--initial", "[1"]) == EXIT_USAGE
    assert "--initial is '[1'" in capsys.readouterr().err


def test_the_page_names_the_key(tmp_path):
    path = tmp_path / "h.edn"
    text = "".join(
        f"{{:process {who[:-1]}, :type :{dict(zip('!+', ('invoke', 'ok'), strict=True))[who[-1]]}, "
        f":f :{f}, :value [{key} {'nil' if value is None else value}]}}\n"
        for who, f, (key, value) in lifted([WROTE, STALE])
    )
    path.write_text(text)
    assert main(["check", str(path), "--html", str(tmp_path / "pages")]) == EXIT_INVALID
    (page,) = (tmp_path / "pages").iterdir()
    assert "key 1: not linearizable" in page.read_text()


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1_0", " 1", "²", "1²", "٣", "9" * 21, "9" * 5000]
)
def test_other_texts_are_no_whole_numbers(text):
    assert whole_number(text) is None


def test_whole_numbers_have_up_to_twenty_digits():
    assert [whole_number(text) for text in ("0", "007", "9" * 20)] == [0, 7, 10**20 - 1]
