"""Wrong calls: each answer quotes the value and says what to write instead; the code is 254."""

import pytest

from harness.cli import main
from harness.errors import EXIT_USAGE

RUN = "run --env sim --time-limit 1"
CALLS = [
    # the call, the value that the answer quotes, the repair that it names
    ("rum", "'rum'", "did you mean run?"),
    ("soack --seeds 1", "'soack'", "did you mean soak?"),
    ("ksck", "'ksck'", "harness --help"),
    ("help runn", "'runn'", "did you mean run?"),
    ("completion bsh", "'bsh'", "did you mean bash?"),
    ("fetch hiev", "'hiev'", "did you mean hive?"),
    ("list nemesis", "'nemesis'", "did you mean nemeses?"),
    ("list bugs --target hve", "'hve'", "did you mean hive?"),
    ("list nemeses --target hive", "'hive'", "harness list bugs --target hive"),
    (f"{RUN} --nemesis partition-leadr", "'partition-leadr'", "partition-leader?"),
    (f"{RUN} --nemesis Kill-Leader", "'Kill-Leader'", "kill-leader?"),
    (f"{RUN} --nemesis earthquake", "'earthquake'", "harness list nemeses"),
    (f"{RUN} --nemesis none,kill-leader", "'none,kill-leader'", "none"),
    (f"{RUN} --nemesis kill-metastore", "'kill-metastore'", "--hms"),
    (f"{RUN} --nemesis kill-zookeeper", "'kill-zookeeper'", "--token-store zookeeper"),
    (f"{RUN} --nemesis metastore-membership", "'metastore-membership'", "--spare-metastores 1"),
    (f"{RUN} --workload row", "'row'", "rows?"),
    (f"{RUN} --workload hms-dll", "'hms-dll'", "hms-ddl?"),
    (f"{RUN} --workload register", "'register'", "--target toy-register"),
    (f"{RUN} --workload rows --target hive", "'rows'", "--target kudu"),
    (f"{RUN} --workload hms-ddl --target kudu", "'hms-ddl'", "--target hive"),
    (f"{RUN} --target kuddu", "'kuddu'", "did you mean kudu?"),
    ("run --env simm", "'simm'", "did you mean sim?"),
    (f"{RUN} --profile strct", "'strct'", "did you mean strict?"),
    (f"{RUN} --bug DROP-DROP", "'DROP-DROP'", "add --target hive"),
    (f"{RUN} --bug KUDU-1375", "'KUDU-1375'", "KUDU-1374"),
    (f"{RUN} --damage minorty", "'minorty'", "did you mean minority?"),
    (f"{RUN} --reporters pgae", "'pgae'", "did you mean page?"),
    ("run --env sim --time-limit=-5", "--time-limit is -5", "more than 0"),
    (f"{RUN} --rate many", "--rate is 'many'", "a number"),
    (f"{RUN} --concurrency 2.5", "--concurrency is '2.5'", "a whole number"),
    (f"{RUN} --interval 0", "--interval is 0", "more than 0"),
    (f"{RUN} --op-timeout 1e6", "--op-timeout is 1e+06", "at most"),
    (f"{RUN} --draw 1000", "--draw is 1000", "0 .."),
    (f"{RUN} --seed=-1", "--seed is -1", "0 .."),
    (f"{RUN} --rat 3", "--rat", "did you mean --rate"),
    (f"{RUN} --workload rows --names 4", "--names 4", "belongs to the workloads"),
    (f"{RUN} --metastores 3", "--metastores 3", "belongs to the target"),
    (f"{RUN} --kudu-flag raft_heartbeat_interval=1", "'raft_heartbeat_interval'", "interval_ms"),
    (f"{RUN} --kudu-flag foo", "'foo'", "NAME=VALUE"),
    (f"{RUN} --mix creat=3", "'creat'", "did you mean create?"),
    (f"{RUN} --mix create", "'create'", "KIND=WEIGHT"),
    (f"{RUN} --knob latency", "'latency'", "NAME=VALUE"),
    (f"{RUN} --tservers 0", "--tservers is 0", "1 .."),
    (f"{RUN} --workload mixed --tservers 3", "--tservers is 3", "--tservers 4"),
    (f"{RUN} --case no-such-file", "'no-such-file'", "No such file"),
    ("soak --seeds 9..1", "'9..1'", "not be below the first"),
    ("soak --seeds 1 --jobs 0", "--jobs is 0", "1 .."),
    ("soak --seeds 1 --keep some", "'some'", "all"),
    (f"{RUN} --checkers default,+statz", "'statz'", "did you mean stats?"),
    ("check --model regster .", "'regster'", "did you mean register?"),
    ("check --model earthquake .", "'earthquake'", "`harness list checkers` shows all"),
    ("check --elle lst-append .", "'lst-append'", "did you mean list-append?"),
    ("check --model list-append .", "'list-append'", "use --elle list-append"),
    ("report --engine duck .", "'duck'", "did you mean duckdb?"),
    ("check-determinism --runs x", "--runs is 'x'", "a whole number"),
    ("kudu tabel list", "'tabel'", "table"),
    ("lake chek .", "'chek'", "check"),
]
FAULTS = [
    ("kil leader", "'kil'", "did you mean kill?"),
    ("kill leadr", "'leadr'", "did you mean leader?"),
    ("kill node:m9", "'m9'", "m1"),
    ("kill role:mastr", "'mastr'", "did you mean master?"),
    ("kill leader every 10s", "every 10s", "for"),
]
FILES = [
    ('nemesis = ["kill-leader"]', "'nemesis'", "did you mean nemeses?"),
    ('nemeses = "kill-leader"', "'kill-leader'", "a list of texts"),
    ("time-limit = true", "True", "a number"),
    ("target = kudu", "harness.toml", "fix it"),
]


@pytest.mark.parametrize(("call", "value", "repair"), CALLS, ids=[each[0] for each in CALLS])
def test_an_answer_quotes_the_value_and_names_the_repair(
    call, value, repair, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _is_refused(call.split(), value, repair, capsys)


@pytest.mark.parametrize(("fault", "value", "repair"), FAULTS)
def test_a_fault_in_wrong_words(fault, value, repair, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _is_refused([*RUN.split(), "--fault", fault], value, repair, capsys)


@pytest.mark.parametrize(("content", "value", "repair"), FILES)
def test_a_wrong_file_of_defaults(content, value, repair, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "harness.toml").write_text(content)
    _is_refused(RUN.split(), value, repair, capsys)


def _is_refused(arguments, value, repair, capsys):
    code = main(arguments)
    out, answer = capsys.readouterr()
    assert (code, out) == (EXIT_USAGE, "")
    assert answer.count("\n") <= 2
    assert value in answer
    assert repair in answer
