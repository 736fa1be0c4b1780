"""Ops are read from logs, from Jepsen's `history.txt`, from JSON, and from folders."""

import json

import pytest

from checkers.foreign.keyed import TAKEN
from harness.cli import main
from harness.cli.check.find_tasks import find_tasks
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID, HistoryError
from harness.formats import open_history
from harness.ops import OpType
from harness.store import load_run

INVOKE, OK, FAIL, INFO = OpType.INVOKE, OpType.OK, OpType.FAIL, OpType.INFO
LINES = [
    "0\t:invoke\t:write\t1",
    "0\t:ok\t:write\t1",
    ':nemesis\t:info\t:start\t"Cut off {:n1 #{:n2}}"',
    "1\t:invoke\t:read\tnil",
    "1\t:ok\t:read\t%s",
    "2\t:invoke\t:write\t2",
    "2\t:info\t:write\t2\t[:timeout {:a 1}]",
    "3\t:invoke\t:read\tnil",
    "3\t:fail\t:read\tnil\tConnection (refused",
]
NOISE = [
    "2026-01-01 starting {:type :ok :f :read}",
    "INFO  jepsen.util - A message of another kind",
    'ERROR 3 failures :invoke failed: {:valid? false, :op "0 :invokes"}',
    "[main] INFO x - done :ok",
]


def written(tmp_path, text, name="file"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def logs(value):
    """Return the same ops in each log format."""
    lines = [line % value if "%s" in line else line for line in LINES]
    prefix = "2026-01-01 10:00:00,000{GMT}\tINFO\t[jepsen worker 0] jepsen.util: "
    return [
        ("jepsen-log", "\n".join(lines)),
        ("jepsen-log", "\n\n".join(prefix + line for line in lines) + "\n"),
        ("jepsen-log", "\n".join([*NOISE, *(f"12:00 {line}" for line in lines)])),
        (
            "jepsen-log",
            "\n".join(f"{noise}\n{prefix}{line}" for noise in NOISE[:1] for line in lines),
        ),
        ("porcupine-etcd", "\n".join([*NOISE, *(f"INFO  jepsen.util - {line}" for line in lines)])),
    ]


@pytest.mark.parametrize("number", range(5))
def test_ops_are_found_in_logs_of_every_kind(number, tmp_path, capsys):
    format_, text = logs("1")[number]
    source = open_history(written(tmp_path, text))
    assert source.format == format_
    ops = list(source)
    assert [(op.process, op.type, op.f, op.value) for op in ops] == [
        (0, INVOKE, "write", 1),
        (0, OK, "write", 1),
        ("nemesis", INFO, "start", "Cut off {:n1 #{:n2}}"),
        (1, INVOKE, "read", None),
        (1, OK, "read", 1),
        (2, INVOKE, "write", 2),
        (2, INFO, "write", 2),
        (3, INVOKE, "read", None),
        (3, FAIL, "read", None),
    ]
    assert ops[6].error == '["timeout",{"a":1}]'
    lines = text.splitlines()
    for op in ops:
        line, column = source.position(op.index)
        assert lines[line - 1][column - 1 :].split()[1] == f":{op.type}"
    for value, code in (("1", EXIT_VALID), ("7", EXIT_INVALID)):
        written(tmp_path, logs(value)[number][1])
        assert main(["check", str(tmp_path / "file")]) == code
    capsys.readouterr()


@pytest.mark.parametrize("number", range(len(logs("1"))))
def test_a_log_that_was_cut_before_the_last_value_is_refused(number, tmp_path, capsys):
    """Without its value, an op looks like an answered read of nil, which was never written."""
    text = logs("1")[number][1]
    at = text.rindex("read") + len("read")
    assert main(["check", str(written(tmp_path, text[:at]))]) == EXIT_USAGE
    assert "the file ends before the value" in capsys.readouterr().err
    written(tmp_path, f"{text[:at]}\n")
    assert main(["check", str(tmp_path / "file")]) in {EXIT_VALID, EXIT_INVALID}


@pytest.mark.parametrize("noise", ["nothing here", "[main] INFO begun", '{"level": 1}', "# note"])
def test_the_beginning_of_a_log_may_be_long(noise, tmp_path):
    text = f"{noise}\n" * 20_000 + "\n".join(LINES) % "1"
    assert len(list(open_history(written(tmp_path, text)))) == len(LINES)


def op(process, kind, f, value):
    return {"process": process, "type": kind, "f": f, "value": value}


STRINGS = [
    op(0, "invoke", "txn", [["append", "x", "1"]]),
    op(0, ":ok", ":txn", [[":append", "x", "1"]]),
    op("nemesis", "info", "start", {"n1": 1.5}),
    op(1, "invoke", "txn", [["r", "x", None]]),
    op(1, "ok", "txn", [["r", "x", ["1"]]]),
]


@pytest.mark.parametrize(
    "text",
    [
        "".join(json.dumps(each) + "\n" for each in STRINGS),
        json.dumps(STRINGS),
        json.dumps(STRINGS, indent=2),
        "\n\n".join(json.dumps(each, indent=1) for each in STRINGS),
    ],
)
def test_json_is_read_in_every_layout(text, tmp_path, capsys):
    path = written(tmp_path, text, "h.json")
    source = open_history(path)
    assert source.format == "json"
    assert [op.value for op in source] == [
        [["append", "x", "1"]],
        [["append", "x", "1"]],
        {"n1": 1.5},
        [["r", "x", None]],
        [["r", "x", ["1"]]],
    ]
    line, column = source.position(3)
    assert text.splitlines()[line - 1][column - 1] == "{"
    assert main(["check", str(path)]) == EXIT_VALID
    path.write_text(text.replace('["1"]', "[1]") if '["1"]' in text else text.replace("null", "1"))
    capsys.readouterr()


HISTORY = "".join(
    f"{{:process 0, :type :{kind}, :f :write, :value 1}}\n" for kind in ("invoke", "ok")
)
JEPSEN = {
    "history.edn": HISTORY,
    "history.txt": "0\t:invoke\t:write\t1\n",
    "jepsen.log": "nothing",
    "results.edn": "{:valid? true}",
    "timeline.html": "",
    "n1/db.log": "[1] {:process 0 :type :invoke",
    "independent/0/history.edn": HISTORY,
}


@pytest.mark.parametrize(
    ("names", "judged"),
    [
        (JEPSEN, ["history.edn"]),
        (JEPSEN.keys() - {"history.edn"}, ["history.txt"]),
        ({"jepsen.log", "results.edn", "n1/db.log"}, ["jepsen.log"]),
        ({"history.edn", "n1/db.log"}, ["history.edn"]),
        ({"results.edn", "independent/0/history.edn"}, ["independent/0/history.edn"]),
        (
            {"history.edn", "independent/0/history.edn"},
            ["history.edn", "independent/0/history.edn"],
        ),
    ],
)
def test_of_a_test_of_jepsen_s_one_history_is_judged(names, judged, tmp_path):
    for name in names:
        written(tmp_path, JEPSEN[name], f"store/test/1/{name}")
    tasks, aside, failures = find_tasks([tmp_path])
    folder = tmp_path / "store/test/1"
    assert [str(task.path.relative_to(folder)) for task in tasks] == judged
    assert (aside.files > 0, failures) == (len(names) > len(judged), [])


@pytest.mark.parametrize(
    ("name", "text", "judged"),
    [
        ("a.log", "\n".join(LINES), True),
        ("a.log", "noise\n" + "\n".join(LINES), True),
        ("a.log", "[1] started {:process 0}", False),
        ("a.log", "", False),
        ("a.txt", "to do", False),
        ("a.txt", "1 7 0 2\n", True),
        ("a.json", json.dumps(STRINGS), True),
        ("a.json", '{"name": "x"}', False),
        ("a.jsonl", '{"process": 0, "type": "invoke", "f": "read"}\n', True),
        ("a.edn", "what", True),  # such a file is refused rather than skipped
        ("a.edn", "", True),
    ],
)
def test_files_that_many_others_look_like_are_histories_if_they_have_ops(
    name, text, judged, tmp_path
):
    written(tmp_path, HISTORY, "b.edn")
    tasks, aside, _ = find_tasks([written(tmp_path, text, name).parent])
    assert (name in {task.path.name for task in tasks}) is judged
    assert aside.files == (not judged)


def edn(*ops):
    return "".join(
        f"{{:process {process}, :type :{kind}, :f :{f}, :value {value}}}\n"
        for process, kind, f, value in ops
    )


def both(process, f, asked, answer, kind="ok"):
    return (process, "invoke", f, asked), (process, kind, f, answer)


NEMESIS = (":nemesis", "info", "start", '{"n1" [:killed ##NaN], :x #{1}}')
WRITTEN = both(0, "write", 1, 1)
HISTORIES = {
    "cas-register": edn(
        *WRITTEN, NEMESIS, *both(1, "read", "nil", 1), *both(2, "cas", "[1 2]", "[1 2]")
    ),
    "a wildcard and an unknown write": edn(
        *WRITTEN,
        *both(1, "write", 5, 5, "info"),
        *both(2, "read", "nil", "nil"),
        *both(2, "read", "nil", 5),
    ),
    "0 at first": edn(*both(0, "read", "nil", 0)),
    "stale": edn(*WRITTEN, *both(1, "read", "nil", 0)),
    "keywords": edn(*both(0, "write", ":a", ":a"), *both(1, "read", "nil", '"a"')),
    "decimals": edn(
        *both(0, "write", "0.1M", "0.1M"), *both(1, "read", "nil", "0.10000000000000000001M")
    ),
    "floats": edn(*both(0, "write", 1, 1), *both(1, "read", "nil", "1.0")),
    "list-append": edn(
        *both(0, "txn", "[[:append :x 1]]", "[[:append :x 1]]"),
        *both(1, "txn", "[[:r :x nil]]", "[[:r :x [1]]]"),
    ),
    "keys apart": edn(
        *both(0, "txn", "[[:append :x 1]]", "[[:append :x 1]]"),
        *both(1, "txn", '[[:r "x" nil]]', '[[:r "x" []]]'),
    ),
    "rw-register": edn(
        *both(0, "txn", "[[:w :x 1]]", "[[:w :x 1]]"),
        *both(1, "txn", "[[:r :x nil]]", "[[:r :x 1]]"),
    ),
    "set": edn(
        *both(0, "add", ":a", ":a"), *both(0, "add", 2, 2), *both(1, "read", "nil", "#{2 :a}")
    ),
    "mutex": edn(*both(0, "acquire", "nil", "nil"), *both(1, "release", "nil", "nil")),
    "independent": edn(
        *both(0, "write", "[0 1]", "[0 1]"),
        *both(1, "write", "[1 2]", "[1 2]"),
        *both(0, "read", "[0 nil]", "[0 1]"),
        *both(1, "read", "[1 nil]", "[1 2]"),
    ),
    "kv-string": edn(
        *both(0, "put", '["k" "a"]', '["k" "a"]'), *both(1, "get", '["k" nil]', '["k" "a"]')
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_an_imported_history_has_the_verdict_of_its_file(name, tmp_path, capsys):
    file = written(tmp_path, HISTORIES[name], "h.edn")
    code = main(["check", str(file), "--json"])
    content = json.loads(capsys.readouterr().out)
    assert main(["import", str(file), "--store", str(tmp_path / "s")]) == EXIT_VALID
    run = load_run(capsys.readouterr().out.strip())
    assert main(["check", str(tmp_path / "s"), "--json"]) == code
    stored = json.loads(capsys.readouterr().out)
    same = ("verdict", "model", "reason", "operations", "anomalies", "not")
    content["reason"] = content["reason"].replace(f"; {TAKEN}, if not: --no-independent", "")
    assert {key: stored[key] for key in same} == {key: content[key] for key in same}
    assert main(["export", str(run.folder)]) == EXIT_VALID
    again = written(tmp_path, capsys.readouterr().out, "again.edn")
    assert list(open_history(again)) == list(open_history(file))


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (HISTORIES["stale"], ("--workload", "register"), "line 1, column 1: op 0 invokes 'write'"),
        (HISTORIES["stale"], ("--elle", "rw-register"), "line 1, column 1: op 0"),
        (HISTORIES["stale"], ("--model", "list-append"), "use --elle list-append"),
        (HISTORIES["stale"], ("--model", "mutex"), "line 2, column 1: op 1 is 'write'"),
        (edn(*both(0, "fly", 1, 1)), (), "suggest no model"),
        (edn((":n1", "info", "note", 1), *WRITTEN), (), "line 1, column 1: op 0: the process 'n1'"),
        (edn(*both(0, "write", "##NaN", "nil")), (), "line 1, column 1: op 0 is malformed"),
        (
            edn(
                *both(0, "txn", "[[:append :x 1]]", "[[:append :x 1]]"),
                *both(1, "txn", "[[:r :x nil]]", "[[:r :x #{1}]]"),
            ),
            (),
            "line 3, column 1: op 2",
        ),
    ],
)
def test_files_that_check_cannot_read_are_not_imported(text, arguments, words, tmp_path, capsys):
    file = written(tmp_path, text, "h.edn")
    assert main(["import", str(file), "--store", str(tmp_path / "s"), *arguments]) == EXIT_USAGE
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_nothing_that_is_printed_steers_a_terminal(tmp_path, capsys):
    hostile = "a\x1b]0;x\x07\x9b2J\x7f"
    for name, text in ((f"{hostile}.edn", HISTORY), (f"{hostile}2.edn", "{:a 1}")):
        written(tmp_path, text, name)
        main(["check", str(tmp_path / name)])
        captured = capsys.readouterr()
        assert "\\u001b]0;x\\u0007\\u009b2J\\u007f" in captured.out + captured.err
        assert captured.out.replace("\n", "").isprintable()
        assert captured.err.replace("\n", "").isprintable()
    main(["check", str(tmp_path / f"{hostile}.edn"), "--json"])
    assert json.loads(capsys.readouterr().out)["path"].endswith(f"{hostile}.edn")


def test_an_unfinished_array_is_refused(tmp_path):
    with pytest.raises(HistoryError, match="the array of ops ends"):
        list(open_history(written(tmp_path, json.dumps(STRINGS)[:-1])))
