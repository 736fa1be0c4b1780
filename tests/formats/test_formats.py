"""Each format is recognised by content and read correctly, and errors are located."""

import pytest

from harness.errors import HistoryError, UsageError
from harness.formats import model_for, open_history
from harness.formats.source import LINE_BYTES_MAX
from harness.ops import History, Op, OpType
from harness.store import write_parquet

INVOKE, OK, FAIL, INFO = OpType.INVOKE, OpType.OK, OpType.FAIL, OpType.INFO
PREFIX = "INFO  jepsen.util - "


JSON = '{"process": 0, "type": "%s", "f": "write", "value": %s}\n'


def source_of(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    return open_history(path)


def test_etcd_logs(tmp_path):
    lines = ["0\t:invoke\t:cas\t[3 -1]", "1   :invoke :read   nil", "0\t:fail\t:cas\t[3 -1]"]
    lines += ["1 :fail :read :timed-out", "2 :invoke :write 4", "2 :info :write :timed-out"]
    source = source_of(tmp_path, "\n\n".join(PREFIX + line for line in lines))
    assert source.format == "porcupine-etcd"
    assert [(op.process, op.type, op.f, op.value, op.error) for op in source] == [
        (0, INVOKE, "cas", [3, -1], None),
        (1, INVOKE, "read", None, None),
        (0, FAIL, "cas", [3, -1], None),
        (1, FAIL, "read", None, "timed-out"),
        (2, INVOKE, "write", 4, None),
        (2, INFO, "write", None, "timed-out"),
    ]
    assert source.position(4) == (9, len(PREFIX) + 1)
    assert source.position(6) is None
    assert model_for(source.format, source) == "etcd-cas-register"


def test_register_tables(tmp_path):
    source = source_of(tmp_path, "1 7 0 1000003\n0 7 1 2\n0 0 2 3\n")
    assert source.format == "register-table"
    assert [(op.time, op.process, op.type, op.f, op.value) for op in source] == [
        (0, 0, INVOKE, "write", 7),
        (1, 1, INVOKE, "read", None),
        (2, 2, INVOKE, "read", None),  # calls come first if times are equal
        (2, 1, OK, "read", 7),
        (3, 2, OK, "read", 0),
    ]
    assert source.position(3) == (2, 1)
    assert model_for(source.format, source) == "register"


CATALOG = (
    "create\tt1\t\t5\t?\t9\t0\t0\t\t0\t1000000001\n"
    "list\t\t\t0\tok\t0\t0\t0\tt1:9,t2:3\t1\t2\n"
    "ren\tt1\tt2\t0\tex\t0\t0\t0\t\t3\t4\n"
)


def test_catalog_tables(tmp_path):
    source = source_of(tmp_path, CATALOG)
    assert source.format == "catalog-table"
    ops = list(source)
    assert [(op.type, op.f) for op in ops] == [
        (INVOKE, "create"),
        (INVOKE, "list"),
        (OK, "list"),
        (INVOKE, "ren"),
        (OK, "ren"),
    ]
    assert ops[0].value == {"name": "t1", "name2": "", "payload": 5, "id": 9}
    assert ops[2].value["listing"] == [["t1", 9], ["t2", 3]]
    assert model_for(source.format, source) == "catalog"


def test_kv_logs(tmp_path):
    text = '{:process 0, :type :invoke, :f :append, :key "0", :value "x"}\n'
    source = source_of(tmp_path, text)
    assert source.format == "porcupine-kv"
    assert [op.value for op in source] == [["0", "x"]]
    assert model_for(source.format, source) == "kv-string"


def test_parquet(tmp_path):
    history = History([Op(0, 0, 0, INVOKE, "read"), Op(1, 1, 0, OK, "read", 3)])
    write_parquet(tmp_path / "any.name", history)
    source = open_history(tmp_path / "any.name")
    assert (source.format, list(source), source.position(0)) == ("parquet", list(history), None)


@pytest.mark.parametrize(
    ("value", "model"),
    [
        (":f :read", "cas-register"),
        (":f :cas :value [1 2]", "cas-register"),
        (':f :put :value [1 "2"]', "kv-string"),
        (":f :txn :value [[:r :x nil] [:append :x 1]]", "list-append"),
        (":f :txn :value [[:r :x [1 2]]]", "list-append"),
        (":f :txn :value [[:r :x 1]]", "rw-register"),
        (":f :init :value {:x 1}", "closed-predicate"),
        (":f :txn :value [[:w :x 1]]", "rw-register"),
        (":f :txn :value [[:read :x nil]]", "multi-register"),
        (":f :create :value {:name t}", "catalog"),
    ],
)
def test_operations_suggest_a_model(tmp_path, value, model):
    source = source_of(tmp_path, f"; note\n[{{:process 0 :type :invoke {value}}}]")
    assert (source.format, model_for(source.format, source)) == ("jepsen-edn", model)


def test_strange_operations_suggest_none(tmp_path):
    source = source_of(tmp_path, "{:process 0 :type :invoke :f :enqueue}")
    with pytest.raises(UsageError, match=r"\(enqueue\) suggest no model"):
        model_for(source.format, source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1, column 1: the file is empty"),
        ("hello world", "begins no history"),
        ("0 :invoke :read nil\nnoise\n", "line 2, column 1: 'noise' is not an op"),
        (f"{PREFIX}0 :invoke :read nil\n{PREFIX}0 :o", "line 2, column 21: '0 :o' is not an op"),
        (f"{PREFIX}0 :maybe :read 3", "column 21: '0 :maybe :read 3' is not an op"),
        (f"{PREFIX}x :ok :read 3", "column 21: 'x :ok :read 3' is not an op"),
        (f"{PREFIX}0 :invoke :write 3 4", "column 38: '3 4' is more than one value"),
        (f"{PREFIX}:w1 :invoke :read nil", "line 1, column 21: op 0: the process 'w1' has a name"),
        (f"{PREFIX}:w1 :ok :read 3", "line 1, column 21: op 0: the process 'w1' has a name"),
        (
            f"{PREFIX}:nemesis :info :kill nil\n{PREFIX}:w1 :fail :cas [1 2]",
            "line 2, column 21: op 1: the process 'w1' has a name",
        ),
        ('{:process "w1", :type :invoke, :f :get, :key "0"}', "op 0: the process 'w1' has a name"),
        (f"{PREFIX}0 :invoke :cas [1 2", "column 36: the file ends before"),
        ('{"process": 0, "type": "invoke"}\n', "line 1, column 1: op 0 lacks f"),
        ('[{"process": 0, "process": 1}]', "line 1, column 2: an object with the key 'process' tw"),
        (f'[{JSON % ("invoke", "1")},\n {{"process": }}]', "line 3, column 14: Expecting value"),
        (JSON % ("invoke", "NaN"), "line 1, column 1: op 0: NaN and Infinity"),
        (JSON % ("invoke", "1e999"), "out of range"),
        (JSON % ("invoke", '"\\ud800"'), "half a surrogate pair"),
        (JSON % ("invoke", "[" * 100_000), "nested too deeply"),
        (JSON % ("invoke", "1") + JSON % ("sure", "1"), "line 2, column 1: op 1 is malformed"),
        (f"[{JSON % ('invoke', '1')}", "column 1: the file must end where the array"),
        (f"[{JSON % ('invoke', '1')}] {{}}", "column 1: the file must end where the array"),
        ("{:process 0, :type :invoke, :f :write, :value [##NaN]}", "its value holds ##NaN"),
        ("0 :invoke :write ##NaN", "its value holds ##NaN"),
        ("{:process 0, :type :invoke, :f :write, :value 0x1f}", "holds a hexadecimal number"),
        ("{:process 0, :type :invoke, :f :cas, :value [#{0x1f} 2]}", "holds a hexadecimal number"),
        ("0 :invoke :write 0x1f", "holds a hexadecimal number"),
        ("{:process 0, :type :invoke, :f :write, :value 1_0}", "column 47: 1_0 is neither a num"),
        ("{:process 0, :type :invoke, :f :write, :value -2r1}", "column 47: -2r1 is neither a n"),
        ("{:process 0, :type :invoke, :f :write, :value 08}", "the number 08 begins with a zero"),
        (f"{PREFIX}0 :ok :read 3", "line 1, column 21: op 0: .*without an open"),
        (f"{PREFIX}0 :invoke :read nil\n" * 2, "line 2, column 21: op 1: .*still open"),
        ("0 1 2 3\n0 1 2", "line 2, column 6: 3 columns; there must be 4"),
        ("0 1 2 3\n0 1 2 3 4", "line 2, column 9: 5 columns"),
        ("0 1 2 3\n0  z 2 3", "line 2, column 4: 'z' is not a whole number"),
        ("0 1 2 3\n2 1 2 3", "line 2, column 1: is_write is 2"),
        ("0 1 5 3", "line 1, column 7: it returns at 3, before its call at 5"),
        (CATALOG + "list\t1", "line 4, column 7: 2 columns"),
        (CATALOG.replace("ren\t", "fly\t"), "line 3, column 1: 'fly' is not an operation"),
        (CATALOG.replace("\tex\t", "\tno\t"), "line 3, column 13: 'no' is not a result of ren"),
        (CATALOG.replace("t2:3", "t2"), "line 2, column 19: 't2' in the listing"),
        (CATALOG.replace("\t?", "\tok"), "line 1, column 14: the result is 'ok' but the return"),
        (CATALOG.replace("\t3\t4\n", "\t3\tx\n"), "line 3, column 25: return is 'x'"),
        (CATALOG.replace("\t3\t4\n", "\t3\t2\n"), "line 3, column 25: it returns at 2"),
    ],
)
def test_mistakes_are_located(tmp_path, text, words):
    with pytest.raises(HistoryError, match=words):
        list(source_of(tmp_path, text))


@pytest.mark.parametrize("first", ["0 1 2 3\n", f"{PREFIX}0 :invoke :read nil\n", CATALOG])
@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (b"x" * (LINE_BYTES_MAX + 5), "longer than 1 MiB"),
        (b"abc\xff", r"line \d, column 4: the byte 0xff"),
    ],
)
def test_hostile_lines_are_refused(tmp_path, first, rest, words):
    path = tmp_path / "file"
    path.write_bytes(first.encode() + rest)
    with pytest.raises(HistoryError, match=words):
        list(open_history(path))
