"""Additional data that other harnesses write into ops changes no verdict."""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID
from harness.ops import OpType

DONE = [
    {"process": 0, "type": "invoke", "f": "write", "value": 1},
    {"process": 0, "type": "ok", "f": "write", "value": 1},
    {"process": 1, "type": "invoke", "f": "read", "value": None},
    {"process": 1, "type": "ok", "f": "read", "value": 1},
]


def checked(tmp_path, text, name, *options):
    path = tmp_path / name
    path.write_text(text)
    return main(["check", str(path), *options])


def edn(fields):
    """Write the ops of DONE, each preceded by these fields."""
    lines = []
    for op in DONE:
        value = "nil" if op["value"] is None else op["value"]
        own = f":process {op['process']} :type :{op['type']} :f :{op['f']} :value {value}"
        lines.append(f"{{{fields} {own}}}")
    return "\n".join(lines)


@pytest.mark.parametrize("first", ["invoke", "ok"])
def test_the_first_op_behind_a_byte_order_mark_is_an_op(first, tmp_path, capsys):
    lines = ["0 :invoke :write 1", "1 :invoke :read nil", "1 :ok :read 1"]
    if first == "ok":
        lines.insert(1, "0 :ok :write 1")
    assert checked(tmp_path, "\ufeff" + "\n".join(lines), "history.txt") == EXIT_VALID


@pytest.mark.parametrize("fields", [":index -1", ":index -1 :time -1", ":time 1.5"])
def test_records_without_indices_and_times_in_seconds_are_read(fields, tmp_path, capsys):
    assert checked(tmp_path, edn(fields), "h.edn") == EXIT_VALID


@pytest.mark.parametrize(("written", "read"), [("010", "8"), ("-007", "-7"), ("00", "0")])
def test_a_leading_zero_means_octal_digits_as_in_clojure(written, read, tmp_path, capsys):
    lines = [f"0 :{kind} :write {written}" for kind in ("invoke", "ok")]
    lines += ["1 :invoke :read nil", f"1 :ok :read {read}"]
    assert checked(tmp_path, "\n".join(lines), "history.txt") == EXIT_VALID


def test_a_file_without_processes_is_the_history_of_one_client(tmp_path, capsys):
    ops = ["[[:append 1 1]]", "[[:append 2 1] [:r 1 [1]]]", "[[:r 1 [1]] [:r 2 [%s]]]"]
    lines = [f"{{:type :{kind}, :value {op}}}" for op in ops for kind in ("invoke", "ok")]
    assert checked(tmp_path, "\n".join(lines) % (1, 1), "h.edn") == EXIT_VALID
    assert checked(tmp_path, "\n".join(lines) % ("", ""), "h.edn") == EXIT_INVALID
    concurrent = [lines[0], lines[2], lines[1], lines[3]]
    assert checked(tmp_path, "\n".join(concurrent), "h.edn") == EXIT_USAGE
    assert "line 2, column 1: op 1: process 0 invokes" in capsys.readouterr().err
    op = "{:process 1, :type :invoke, :f :txn, :value [[:r 1 nil]]}"
    for text, words in [
        ("\n".join([*lines, op]) % (1, 1), "op 6 has a process, but the ops before it have none"),
        (f"{op}\n{lines[0]}", "line 2, column 1: op 1 lacks process"),
    ]:
        assert checked(tmp_path, text, "h.edn") == EXIT_USAGE
        assert words in capsys.readouterr().err


def test_addresses_of_objects_may_be_in_exceptions(tmp_path, capsys):
    text = edn(':exception {:via [#object[a.B 0x1f "a.B@1f"]]}')
    assert checked(tmp_path, text, "h.edn") == EXIT_VALID


@pytest.mark.parametrize("f", ["nil", "[:kill 1]", "{:a 1}", "3"])
def test_the_nemesis_may_do_anything(f, tmp_path, capsys):
    note = f"\n{{:process :nemesis :type :info :f {f} :value nil}}"
    assert checked(tmp_path, edn("") + note, "h.edn") == EXIT_VALID


def test_a_record_with_a_nil_f_is_a_transaction(tmp_path, capsys):
    lines = [
        f"{{:process 0 :type :{kind.value} :f nil :value [[:append :x 1]]}}"
        for kind in (OpType.INVOKE, OpType.OK)
    ]
    assert checked(tmp_path, "\n".join(lines), "h.edn", "--elle", "list-append") != EXIT_USAGE


def test_keys_of_json_may_begin_with_a_colon(tmp_path, capsys):
    ops = [{f":{name}": value for name, value in op.items()} for op in DONE]
    assert checked(tmp_path, json.dumps(ops), "h.json") == EXIT_VALID
    ops[-1][":value"] = 7
    assert checked(tmp_path, json.dumps(ops), "h.json") == EXIT_INVALID
    ops[-1]["value"] = 1
    assert checked(tmp_path, json.dumps(ops), "h.json") == EXIT_USAGE
    assert "a key twice" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_json_matter_only_in_judged_values(number, tmp_path, capsys):
    value = float(number)
    note = {"process": "nemesis", "type": "info", "f": "clock", "value": {"n1": [value]}}
    error = {**DONE[0], "value": 1, "latency": value}
    assert checked(tmp_path, json.dumps([note, error, *DONE[1:]]), "h.json") == EXIT_VALID
    wrong = {**DONE[0], "value": value}
    assert checked(tmp_path, json.dumps([wrong, *DONE[1:]]), "h.json") == EXIT_USAGE
    assert "NaN and Infinity are not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["nil", "[1 2]"])
def test_the_model_is_suggested_for_what_independent_says(key, tmp_path, capsys):
    lines = [
        f"0 :invoke :write [{key} 1]",
        f"0 :ok :write [{key} 1]",
        f"1 :invoke :read [{key} nil]",
        f"1 :ok :read [{key} 2]",
    ]
    text = "\n".join(lines)
    assert checked(tmp_path, text, "h.txt", "--independent") in {EXIT_INVALID, EXIT_USAGE}
    err = capsys.readouterr().err
    assert "suggest no model" not in err


def test_of_an_import_nothing_is_said_that_it_had_said(tmp_path, capsys):
    path = tmp_path / "h.edn"
    path.write_text(edn(""))
    assert main(["import", str(path), "--store", str(tmp_path / "store")]) == EXIT_VALID
    assert main(["check", str(tmp_path / "store")]) == EXIT_VALID
    assert "had said" not in capsys.readouterr().out
