"""EDN is written and read back, Jepsen's EDN is understood, and errors have positions."""

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.formats.edn.forms import parse_forms
from harness.formats.edn.jepsen import load_edn, write_edn
from harness.ops import NEMESIS, OpType
from harness.vocabularies.edn import edn_of, settled
from tests.store.test_store import histories


@given(history=histories())
def test_round_trip(history, tmp_path_factory):
    path = tmp_path_factory.mktemp("e") / "history.edn"
    text = io.StringIO()
    write_edn(history, text)
    path.write_text(text.getvalue(), encoding="utf-8")
    assert load_edn(path) == load_edn(str(path)) == history


JEPSEN = """; from a knossos run
[{:process 0, :type :invoke, :f :cas, :value [0 3], :index 0, :time 11}
 #jepsen.history.Op{:index 1, :time 12, :type :ok, :process 0, :f :cas, :value [0 3]}
 {:type :info, :f :start, :process :nemesis, :value {"n1" #{"n2"}}, :index 2, :time 13} #_ {:a 1}
 {:process 1 :type :invoke :f :read :value nil :index 3 :time 1.5e1}]
"""


def test_a_jepsen_history_is_understood(tmp_path):
    path = tmp_path / "history.edn"
    path.write_text(JEPSEN.replace("1.5e1", "15"))
    history = load_edn(path)
    assert [op.type for op in history] == [OpType.INVOKE, OpType.OK, OpType.INFO, OpType.INVOKE]
    assert history[1].value == [0, 3]
    assert (history[2].process, history[2].value) == (NEMESIS, {"n1": ["n2"]})


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("nil true false", [None, True, False]),
        ("1 -2 3N 1.5 2e3 4.M", [1, -2, 3, 1.5, 2000.0, "#4M"]),
        ("0.10M -1e2M 0.0M 1E-99M 4/2 -2/4", ["#0.1M", "#-100M", "#0M", "#1E-99M", 2, "#-1/2"]),
        (r'"a\n\"\u0041" \newline \x sym/bol', ['a\n"A', "#\\\n", "#\\x", "#'sym/bol"]),
        ("(1 [2 {3 4}] #{6 5})", [[1, [2, {"3": 4}], {"#{}": [5, 6]}]]),
        ('#inst "2026" #_x :k #a.B{:c 1}', ["#inst 2026", ":k", {"c": 1}]),
        (r"[\u0041 \formfeed \u004 \#]", [["#\\A", "#\\\f", "#\\u004", "#\\#"]]),
        (
            '":x" "#1/2" "#inst t" "# x" "#\'s" ":"',
            ['#":x', '#"#1/2', '#"#inst t', "# x", "#\"#'s", ":"],
        ),
        ('{:x 1 "x" 2 x 3 :a/b 4}', [{"x": 1, '#"x': 2, "#'x": 3, ":a/b": 4}]),
        (
            '{1 1 "1" 2 nil 3 "nil" 4 1.5 5 [:x] 6}',
            [{"1": 1, '#"1': 2, "null": 3, '#"nil': 4, "1.5": 5, '[":x"]': 6}],
        ),
        (
            '{#{2 1} 3 "#{}" 4 ":x" 5 "a b" 6}',
            [{'{"#{}":[1,2]}': 3, '#"#{}': 4, '#":x': 5, "a b": 6}],
        ),
        ("##Inf ##-Inf ##NaN", ["##Inf", "##-Inf", "##NaN"]),
        (
            "[[:append :x 1] [:r :y #{:b :a}] [:z :y]]",
            [[["append", ":x", 1], ["r", ":y", {"#{}": [":a", ":b"]}], [":z", ":y"]]],
        ),
        ("; only a comment", []),
    ],
)
def test_the_grammar(text, form):
    found = [settled(read) for read in parse_forms(text)]
    assert repr(found) == repr(form)
    text = " ".join(edn_of(value) for value in found)
    assert repr([settled(read) for read in parse_forms(text)]) == repr(form)


SCALARS = (
    st.sampled_from([":x", "x", '"x"', '":x"', "1", "1.0", "1M", "1.5M", "1/2", '"1/2"', '"#1/2"'])
    | st.sampled_from(["nil", "true", r"\x", "x/y", "##Inf", '"##Inf"', '#inst "x"', '"#inst x"'])
    | st.sampled_from(['"1"', '"null"', '"#{}"', ":a/b", ":a-b", '"a-b"', '"[1]"', '"#\'x"', "->"])
    | st.text(max_size=3).map(lambda text: msgspec.json.encode(text).decode())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{' '.join(items)}]")
        | st.lists(inner, max_size=3, unique=True).map(lambda items: f"#{{{' '.join(items)}}}")
        | st.dictionaries(inner, inner, max_size=3).map(
            lambda pairs: f"{{{', '.join(f'{key} {value}' for key, value in pairs.items())}}}"
        )
    ),
    max_leaves=6,
)


@given(text=VALUES)
def test_a_value_is_written_as_it_was_read(text):
    try:
        [found] = [settled(read) for read in parse_forms(text)]
    except HistoryError:  # the same key or element twice, in two notations
        return
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
    [again] = [settled(read) for read in parse_forms(edn_of(found))]
    assert repr(again) == repr(found)


@given(texts=st.lists(SCALARS, min_size=2, max_size=2, unique=True))
def test_what_edn_tells_apart_stays_apart(texts):
    one, other = (repr(settled(next(parse_forms(text)))) for text in texts)
    assert one != other or all(text.startswith('"') for text in texts)
    assert repr(settled(next(parse_forms(f"{{{' 1 '.join(texts)} 1}}")))).count(": 1") == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [("0.1M", "0.10M"), ("1N", "1"), ("2/4", "1/2"), ("#{1 :a}", "#{:a 1}"), ("(1)", "[1]")],
)
def test_values_equal_in_clojure_are_equal(one, other):
    first, second = (settled(next(parse_forms(text))) for text in (one, other))
    assert first == second


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1\n 2", r"line 1, column 1: the file ends .* closed by '\]'"),
        ("1\n  )", "line 2, column 3: '\\)' closes nothing"),
        ("{:a}", "line 1, column 1: a map with a key"),
        ('"abc', "not closed"),
        (r'"\q"', "escape"),
        (":", "keyword without a name"),
        ("#", "without a tag"),
        ("#_", "ends before"),
        ("[##Info 1]", "line 1, column 2: .*'##Info' is not a number of EDN"),
        ("[1/0]", "divides by zero"),
        ("[^:meta x]", r"column 2: metadata \('\^'\) is not EDN"),
        ("[^{:a 1} x]", "metadata"),
        (r"\ud800", "half a surrogate pair"),
        ("[" * 300, "nested deeper"),
    ],
)
def test_broken_text_is_located(text, words):
    with pytest.raises(HistoryError, match=words):
        list(parse_forms(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "must be a map"),
        ("{:process 0 :type :invoke}", "lacks f"),
        ("{:process 0 :type :maybe :f :read}", "malformed"),
        ("{:process 0 :type :invoke :f :read :index true}", "not a whole number"),
        ("{:process 0 :type :ok :f :read}", "without an open invocation"),
    ],
)
def test_invalid_histories(tmp_path, text, words):
    path = tmp_path / "history.edn"
    path.write_text(text)
    with pytest.raises(HistoryError, match=words):
        load_edn(path)
