"""The two EDN readers agree, input may be split anywhere, and memory is bounded."""

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.formats.edn import forms as edn_forms
from harness.formats.edn import quick_reader as edn_quick
from harness.formats.edn.forms import parse_forms, stream_pieces
from harness.formats.edn.jepsen import EdnOps
from harness.formats.edn.quick_reader import QuickReader, QuickRefusedError
from tests.tiers import examples

TOKENS = [
    *("{", "}", "[", "]", "(", ")", "#{", "#_", "#tag ", '"', '"a b"', '"\\n"', '"é"', "\\("),
    *("\\a", " ", ",", "\n", ";", "; x\n", ":a", ":b", ":", "nil", "true", "null", "nilly"),
    *("1", "-2", "3N", "1.5", "1/2", "007", "+5", "1e3", "9999999999999999999999999", "sym"),
    *("{:a 1}", "[1 2]", "#jepsen.history.Op{", ", ", " ", " ", ":a ", '":"', '"\\":"'),
    *('"\\u003a"', '"\\u00e9"', "{:a 1, :b 2}", "{1 2, 3 4}", "#{1 :a}", "java.lang.X"),
    *("<init>", "->", "0x1f", "e", "-0", "\xa0", "\x1c", "a\\b", "NaN", "\x01", "\x0e"),
    *('; "}\n', '"a;b"', "\\;", '\\"', "12N", "-N", "#{[1] {:a 1}}", "{[1] 2}", "\t"),
    *('#inst "a"', '#t, "b"', '":x"', '"#1/2"', "#{", "1.5M", '"\x1e"', "\x1e", "\x1f", "#a"),
]
FORMS = st.recursive(
    st.sampled_from([":a", ":b", "1", "-7", "nil", "true", '"x y"', "2.5", "sym", "[]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{' '.join(items)}]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ", ".join(f":k{n} {item}" for n, item in enumerate(items)) + "}"
        )
        | st.lists(inner, max_size=3).map(lambda items: f"#{{{' '.join(items)}}}")
    ),
    max_leaves=12,
)


TREES = st.recursive(
    st.sampled_from([":a", ":b", "1", "-7", "nil", "true", '"x y"', '":"', "2.5", "sym", "#tag 1"]),
    lambda inner: st.tuples(
        st.sampled_from([*("[]", "()", "{}", "{}", "{}"), *(("#{", "}"), ("[", "}"))]),
        st.sampled_from([" ", ", ", ",", " , "]),
        st.lists(
            inner | st.tuples(st.sampled_from([":a", ":b", "3", "sym"]), inner).map(" ".join),
            max_size=4,
        ),
    ).map(lambda made: made[0][0] + made[1].join(made[2]) + made[0][1]),
    max_leaves=14,
)


@settings(max_examples=examples(500), deadline=None)
@given(
    text=st.lists(st.sampled_from(TOKENS), max_size=14).map("".join)
    | st.lists(TREES, max_size=3).map("\n".join)
    | st.tuples(TREES, st.integers(0, 60), st.sampled_from(TOKENS)).map(
        lambda made: made[0][: made[1]] + made[2] + made[0][made[1] :]
    )
)
def test_what_the_quick_reader_accepts_the_exact_one_reads_equally(text):
    try:
        found = QuickReader().forms(text.encode())
    except QuickRefusedError:
        return
    assert repr(found) == repr(list(parse_forms(text)))


@pytest.mark.parametrize(
    "text",
    [
        '{:index 0 :type :invoke, :f :txn, :value [[:append "k 1" 1] [:r :x [1 2 nil]]]}\n' * 3,
        '{:a {:b [{:c 1}]}}\n[1 {"x" true}]\n',
        "#jepsen.history.Op{:a -1.5e3}\n",
        "{}\n[]\n",
        '{:a {:b [{:c 1, "d" :e}], :f (1 (2 3))}, :g #{4 :h}}, {}\n',
        '{0 10, 1 -20, :k "say \\"x\\": \\u00e9"}',
        '{:via [{:type java.io.IOException}], :trace [[clojure.lang.AFn <init> "A.clj" 0x1f nil]]}',
        "[{:a nil :b juvenil} true-ish nilly]",
        "#tag#{1 2}",
        '#inst "2026-01-01" #object[a.B 0x1 {:c 1}]',
        "#{[1 #{:a}] {:b #{{:c 1} []}}}",
        '; it\'s "one"\n{:a ";" ; and } two\n :b 1}\n;;\n',
        "{:a 12N, :b [-7N 0N]}",
        "{1 10 2 [20 {3 {}}] :a {} }",
        "{:a {:b [{:c {:d [{:e 1} 2]}} {}] :f 2}} [[[[[1] {:g 3}]]]]",
    ],
)
def test_plain_text_is_read_quickly(text):
    assert QuickReader().forms(text.encode()) == list(parse_forms(text))


def test_remembered_values_are_bounded(monkeypatch):
    monkeypatch.setattr(edn_quick, "_REMEMBERED_MAX", 3)
    reader = QuickReader()
    assert reader.forms(b"[:a :b :c :d :e]") == [[":a", ":b", ":c", ":d", ":e"]]
    assert len(reader._quoted) == 3
    reader = QuickReader()
    reader.forms(b'["' + b"x" * 1000 + b'" :short]')
    assert list(reader._quoted) == [b":short"]


@pytest.mark.parametrize(
    "text",
    [
        *("null", "{:a}", "{:a 1 :a 2}", "{:a 1 :b}", "[1}", "(1]", '{"a": 1}', "01"),
        *("{[1] 2}", "{:a 1, :a 2}", "[{:a {:b 1, :b 2}, :c 3}]", "{1 2, 1 3}", "{:a 1, :b}"),
        *("{#{1} 2}", "{:a 1} ; x", "[1 ; x]", '\\" ; "\n', "#_ 1 2", "\\a", "[#tag]", "#tag"),
        *("#t:a 1", '#t"a', '"\\/"', "1/2", "a:b", "##jepsen.history.Op{1}", '#t"a 1'),
        *('{:a 1, :a "\\u003a"}', "{01 2}", "{-0 2}", '{:a "x', '"\\', '{:a "\\"}'),
        *('"x" "y\\"z',),
        *("[" * 199 + "]" * 199, "{:a " * 250 + "1" + "}" * 250),
    ],
)
def test_what_is_not_plain_is_refused(text):
    with pytest.raises(QuickRefusedError):
        QuickReader().forms(text.encode())


OPS = st.builds(
    lambda kind, value, order, between, tag: (
        tag
        + "{"
        + between.join(
            [f":type {kind}", ":f :txn", f":value {value}", ":process 0", ":time 1"][n]
            for n in order
        )
        + "}"
    ),
    st.sampled_from([":invoke", ":ok"]),
    FORMS,
    st.permutations(range(5)),
    st.sampled_from([" ", ", ", "\n ", ",\n", "\t"]),
    st.sampled_from(["", "", "#jepsen.history.Op", '; "}\n', " "]),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    ops=st.lists(OPS, min_size=1, max_size=8),
    separator=st.sampled_from(["\n", " ", "\n  "]),
    at=st.integers(0, 400),
    mutant=st.none() | st.sampled_from(TOKENS),
    span=st.sampled_from([60, 150, 1 << 18]),
)
def test_a_file_of_ops_is_read_as_the_exact_reader_reads_it(
    ops, separator, at, mutant, span, tmp_path_factory
):
    text = separator.join(ops) + "\n"
    if mutant is not None:
        at %= len(text)
        text = text[:at] + mutant + text[at + 1 :]
    path = tmp_path_factory.mktemp("e") / "h.edn"
    path.write_text(text)

    def told(read):
        try:
            return repr(list(read()))
        except HistoryError as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edn_forms, "BLOCK_BYTES", span)
        found = told(
            lambda: (form for piece in stream_pieces(path, unwrap=False) for form in piece.forms)
        )
    assert found == told(lambda: parse_forms(text, str(path)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{:a {:b 1}\n :c 2}\n{:a 3}\n", "{:a {:b 1}\n :c 2}\n"),
        (" {:a [{:b 1}\n  {:b 2}]}\n {:a 3", " {:a [{:b 1}\n  {:b 2}]}\n"),
        ("#a.B{:a 1}\n#a.B{:a 2}\n{", "#a.B{:a 1}\n"),
        ("{:a [{:b 1} {:b 2}]} {:a 3}", "{:a [{:b 1} {:b 2}]}"),
        ("{:a [{:b 1}, {:b 2}]}, {:a 3}", "{:a [{:b 1}, {:b 2}]}"),
        ("{:a 1}\n{:b 2}\n{:c", "{:a 1}\n{:b 2}\n"),
        ("{1 2} {3 4} {5", "{1 2} {3 4}"),
        (" " * 100_000, ""),
        ("{:a 1", ""),
    ],
)
def test_a_piece_ends_where_a_form_seems_to_end(text, wanted):
    assert edn_forms._cut(text.encode(), len(text)) == len(wanted)


@settings(max_examples=examples(200), deadline=None)
@given(
    forms=st.lists(FORMS, max_size=12),
    separator=st.sampled_from(["\n", " ", " ; note }\n", ",\n  "]),
    wrapper=st.sampled_from(["", "[]", "()"]),
    block=st.integers(1, 40),
)
def test_pieces_are_the_same_wherever_blocks_end(
    forms, separator, wrapper, block, tmp_path_factory
):
    path = tmp_path_factory.mktemp("e") / "h.edn"
    opening, closing = (wrapper[0], "\n" + wrapper[1] + " ; end") if wrapper else ("{} ", "")
    path.write_text(opening + separator.join(forms) + closing)
    wanted = list(parse_forms(path.read_text()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edn_forms, "BLOCK_BYTES", block)
        found = [form for piece in stream_pieces(path) for form in piece.forms]
    assert repr(found) == repr(wanted[0] if wrapper else wanted)


def op(index, extra=""):
    kind = "invoke" if index % 2 == 0 else "ok"
    return f"{{:process 0 :type :{kind} :f :read :value nil{extra}}}"


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("block", [1, 7, 64, 1 << 18])
def test_positions_do_not_depend_on_how_it_was_read(tmp_path, quick, block, monkeypatch):
    monkeypatch.setattr(edn_forms, "BLOCK_BYTES", block)
    lines = [f"  {op(n, '' if quick else ' :s #{[1]}')}" for n in range(9)]
    path = tmp_path / "h.edn"
    path.write_text("; head\n[\n" + "\n".join(lines) + "\n]")
    assert len(list(EdnOps(path))) == 9
    assert [EdnOps(path).position(n) for n in (0, 8, 9)] == [(3, 3), (11, 3), None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{op(0)}\n{op(0)}\n", "line 2, column 1: op 1: process 0 invokes"),
        (f"{op(0)}\n\n {op(1)} {op(1)}\n", "line 3, column 45: op 2: .*without an open"),
        (f"[{op(0)}\n{op(1)}\n] {{}}\n", "line 3, column 3: something follows"),
        (f"[{op(0)}\n{op(1)}\n", r"line 1, column 1: the file ends .* '\]'"),
        (f"{op(0)}\n{op(1)[:-9]}", "line 2, column 1: the file ends"),
        (f"{op(0)}\n)", r"line 2, column 1: '\)' closes nothing"),
        (f"[{op(0)}\n)", r"line 2, column 1: '\)' closes nothing"),
        (f"{op(0)}\n[1 2}}\n", r"line 2, column 5: '}' where '\]'"),
        ("{:process 0 :process 1}", "line 1, column 1: a map with the key ':process' twice"),
        ("{:a 1}\n [{:b 1, :b 2}]\n", "line 1, column 1: op 0 lacks"),
        (f"{op(0)}\n [{{:b 1, :b 2}}]\n", "line 2, column 3: a map with the key ':b' twice"),
        ('{:a "\\ud800"}', "half a surrogate"),
        ("1e999", "out of range"),
        ("9" * 5000, "more than 4000 digits"),
        ("[" * 100_000, "nested deeper than 200"),
        ("{:a " * 100_000, "nested deeper than 200"),
    ],
)
def test_mistakes_are_located(tmp_path, text, words):
    path = tmp_path / "h.edn"
    path.write_text(text)
    with pytest.raises(HistoryError, match=words):
        list(EdnOps(path))


def test_bytes_that_are_no_text_are_located(tmp_path):
    path = tmp_path / "h.edn"
    path.write_bytes(op(0).encode() + b"\n{:f \xff}\n")
    with pytest.raises(HistoryError, match="line 2, column 5: the byte 0xff is not UTF-8"):
        list(EdnOps(path))


@pytest.mark.parametrize("left_out", [b"; \xed\n", b"#tag\xed 1\n"])
def test_bytes_that_are_not_text_are_located_among_skipped_lines(tmp_path, left_out):
    path = tmp_path / "h.edn"
    path.write_bytes(b"{:a 1}\n" + left_out + b"{:a 2}\n")
    with pytest.raises(HistoryError, match=r"line 2, column \d: the byte 0xed is not UTF-8"):
        list(stream_pieces(path, unwrap=False))


def test_surrogate_halves_make_one_character():
    assert list(parse_forms('"\\ud83d\\ude00"')) == ["\U0001f600"]


@pytest.mark.parametrize(
    "beginning", [b'{:value "', b"[" + b"{:a 1 :b [", b'{:process 0 :f "', b"; "]
)
def test_one_endless_form_is_refused_in_bounded_memory(tmp_path, monkeypatch, beginning):
    monkeypatch.setattr(edn_forms, "FORM_BYTES_MAX", 1 << 16)
    monkeypatch.setattr(edn_forms, "BLOCK_BYTES", 1 << 12)
    path = tmp_path / "h.edn"
    path.write_bytes(beginning + b"1 " * (1 << 20))
    tracemalloc.start()
    with pytest.raises(HistoryError, match=r"line 1, column \d+: this goes on for more than"):
        list(EdnOps(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("text", "count"),
    [
        # Pieces end within strings. Searching for the ends from every quote would take a minute.
        ('{:a "' + '{\\"b\\": 1}\n' * 30_000 + '"}\n', 1),
        ('{:a "' + ';{\\"b\\": 1}\n' * 30_000 + '"}\n', 1),
        ('{:a "' + '\\"}\n' * 60_000 + '"}\n', 1),
        ("{" + "".join(f":k{n} 1 " for n in range(60_000)) + ":k59999 1}", "':k59999' twice"),
        # A form that is larger than many blocks of the file.
        ("{:a [" + "1 2 3 4 5 " * 100_000 + "]}", 1),
        ("[{:a [" + "[:append 1 2] " * 50_000 + "]}]", 1),
        ("{:a [" + "{:b 1}\n" * 100_000 + "]}\n", 1),
    ],
)
def test_long_forms_take_no_quadratic_time(tmp_path, text, count):
    path = tmp_path / "h.edn"
    path.write_text(text)
    begin_s = time.process_time()
    if isinstance(count, int):
        assert sum(len(piece.forms) for piece in stream_pieces(path)) == count
    else:
        with pytest.raises(HistoryError, match=count):
            list(stream_pieces(path))
    assert time.process_time() - begin_s < 3  # reading usually takes a few hundredths of a second


@pytest.mark.slow
def test_a_long_string_of_escapes_takes_memory_by_its_length(tmp_path):
    path = tmp_path / "h.edn"
    path.write_text('{:a "' + "\\\\" * 300_000 + '"}\n')
    tracemalloc.start()
    assert sum(len(piece.forms) for piece in stream_pieces(path)) == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.slow
def test_a_long_line_of_many_ops_is_streamed(tmp_path):
    path = tmp_path / "h.edn"
    path.write_text("[" + " ".join(op(n) for n in range(20_000)) + "]")
    tracemalloc.start()
    assert sum(1 for _ in EdnOps(path)) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20
