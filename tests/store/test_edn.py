"""Ours reads back equal; theirs is understood; what is broken is named with line and column."""

import io

import pytest
from hypothesis import given

from harness.errors import HistoryError
from harness.ops import NEMESIS, OpType
from harness.store.edn import load_edn, write_edn
from harness.store.edn_forms import parse_forms
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
        ("1 -2 3N 1.5 2e3 4.M", [1, -2, 3, 1.5, 2000.0, 4.0]),
        (r'"a\n\"\u0041" \newline \x sym/bol', ['a\n"A', "\n", "x", "sym/bol"]),
        ("(1 [2 {3 4}] #{5})", [[1, [2, {"3": 4}], [5]]]),
        ('#inst "2026" #_x :k', ["2026", "k"]),
        (r"[\u0041 \formfeed \backspace \u \u004 \#]", [["A", "\f", "\b", "u", "u004", "#"]]),
        ("; only a comment", []),
    ],
)
def test_the_grammar(text, form):
    assert list(parse_forms(text)) == form


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
        ("[##Inf 1]", "line 1, column 2: .*'##Inf' is not a number that a history can hold"),
        ("[1 ##NaN]", "'##NaN'"),
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
        ("1", "not a map of an op"),
        ("{:process 0 :type :invoke}", "lacks f"),
        ("{:process 0 :type :maybe :f :read}", "malformed"),
        ("{:process 0 :type :invoke :f :read :index true}", "not a whole number"),
        ("{:process 0 :type :ok :f :read}", "without an open invocation"),
    ],
)
def test_histories_that_are_none(tmp_path, text, words):
    path = tmp_path / "history.edn"
    path.write_text(text)
    with pytest.raises(HistoryError, match=words):
        load_edn(path)
