"""The message about a wrong call quotes the value and says what to write instead."""

import shlex

import pytest

from harness.cli import main
from harness.errors import EXIT_USAGE

RUN = "run --env sim --time-limit 1"
CALLS = [
    # per row: the call, the value that the message quotes, and the fix that it names
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
    ("replay no-run --until op=1 --page .", "'.'", "name a file"),
    ("export no-run --output .", "'.'", "name a file"),
    ("trace no-run --output .", "'.'", "name a file"),
    ("exam --bugs-page .", "'.'", "name a file"),
    (f"{RUN} --freeze", "--freeze", "--env process"),
    ("soak --seeds 1 --freeze", "--freeze", "--env process"),
    ("soak --seeds 9..1", "'9..1'", "not be below the first"),
    ("exam --part switchs", "'switchs'", "did you mean switches?"),
    ("exam --target kudo", "'kudo'", "did you mean kudu?"),
    ("exam --part switches --only KUDU-766", "'KUDU-766'", "KUDU-765"),
    ("exam --part defects", "--part", "--defects"),
    ("exam --defects no.such.module", "'no.such.module'", "can be imported from this folder"),
    ("exam --defects harness.errors", "'harness.errors'", "PlantedDefect"),
    ("exam --cpu 0", "--cpu is 0", "above 0"),
    ("exam --clean 9..1", "'9..1'", "not be below the first"),
    ("exam --spark-master local[2] --jobs 2", "--jobs", "the cluster decides"),
    ("exam --baseline no-such-file", "'no-such-file'", "No such file"),
    ("soak --seeds 1 --jobs 0", "--jobs is 0", "1 .."),
    ("soak --seeds 1 --keep some", "'some'", "all"),
    (f"{RUN} --checkers default,+statz", "'statz'", "did you mean stats?"),
    ("check --model regster .", "'regster'", "did you mean register?"),
    ("check --model earthquake .", "'earthquake'", "`harness list checkers` shows all"),
    ("check --elle lst-append .", "'lst-append'", "did you mean list-append?"),
    ("check --model list-append .", "'list-append'", "use --elle list-append"),
    ("report --engine duck .", "'duck'", "did you mean duckdb?"),
    ("check-determinism --runs x", "--runs is 'x'", "a whole number"),
    ("bisect HEAD HEAD --case c --jobs 0", "--jobs is 0", "1 .."),
    ("bisect HEAD HEAD --case no-such-file", "'no-such-file'", "No such file"),
    ("kudu tabel list", "'tabel'", "table"),
    ("lake chek .", "'chek'", "check"),
    ("run --nemesis a,,b --env sim", "commas", ""),
    ("run --env process --fault 'shape one from others loss=5%'", "--env sim", ""),
    (f"{RUN} --knob gravity=9", "gravity", ""),
    (f"{RUN} --knob latency=x", "one of: lan, uniform, tail", ""),
    (f"{RUN} --name ../up", "letters", ""),
    (f"{RUN} --target http-register --workload register", "foreign", ""),
    ("soak --seeds x", "1..200", ""),
    ("soak --seeds 1 --env process --jobs 2", "use --env sim", ""),
    ("soak --seeds 1 --env process --spark-master x", "use --env sim", ""),
    ("soak --seeds 1 --jobs 2 --spark-master x", "local[2]", ""),
    ("soak --seeds 1 --stop-after -1", "--stop-after", ""),
    ("soak --seeds 1 --search best", "'best'", "guided"),
    ("soak --seeds 1 --search guided --env process", "process", "use --env sim"),
    ("soak --seeds 1 --search uniform --spark-master x", "--search uniform", "drop --spark-master"),
    ("soak --seeds 1 --label ../x", "--label", ""),
    (f"soak --seeds 1 --label {'x' * 61}", "at most 60", ""),
    ("soak --seeds 1 --artefacts -1", "--artefacts", ""),
    ("soak --seeds 1 --reporters nobody", "nobody", ""),
    ("soak --seeds 1 --github-summary", "GITHUB_STEP_SUMMARY", ""),
    ("soak", "--seeds", ""),
    ("check /no/such/run", "/no/such/run", ""),
    ("check", "PATH", ""),
    ("check-determinism --runs 1", "--runs", ""),
    ("image destroy", "build", ""),
    ("up --env sim", "a cluster cannot stay", ""),
    ("up --env process --name No", "small letters", ""),
    ("up --env process --masters 2", "1, 3, 5 or 7", ""),
    ("up --env process --fault 'kill node:m9'", "no node 'm9'", ""),
    ("up --env process --target moon", "moon", ""),
    ("up --env process --bug NONE-SUCH", "NONE-SUCH", ""),
    ("up --print-compose --target http-register", "foreign programs", ""),
    ("down", "no cluster is running", ""),
    ("down dev", "no cluster is named 'dev'", ""),
    ("break 'kill leader' --for soon", "such as 30s", ""),
    ("break kill all nodes", "in quotes", ""),
    ("break 'kill leader'", "no cluster is running", ""),
    ("heal f1 f2", "one fault", ""),
    ("heal f1 --all", "one fault or --all", ""),
    ("heal --all", "no cluster is running", ""),
    ("status dev", "no cluster is named 'dev'", ""),
    ("check . --model cas", "did you mean cas-register?", ""),
    ("check . --elle register", "use --model register", ""),
    ("check . --elle list-append --model register", "not allowed with", ""),
    ("check h.edn --elle list-append --wfr-keys", "use it with --elle rw-register", ""),
    ("check h.edn --elle rw-register --consistency-model acid", "acid", ""),
    ("check h.edn --model register --linearizable-keys", "--linearizable-keys means nothing", ""),
    ("check h.edn --consistency-model serializable", "--consistency-model means nothing", ""),
    ("check . --jobs 0", "--jobs is 0", ""),
    ("check . --check-time-limit nan", "--check-time-limit is nan", ""),
    ("check /no/such/file", "does not exist", ""),
    (f"{RUN} --fault 'kil leader'", "'kil'", "did you mean kill?"),
    (f"{RUN} --fault 'kill leadr'", "'leadr'", "did you mean leader?"),
    (f"{RUN} --fault 'kill node:m9'", "'m9'", "m1"),
    (f"{RUN} --fault 'kill role:mastr'", "'mastr'", "did you mean master?"),
    (f"{RUN} --fault 'kill leader every 10s'", "every 10s", "for"),
    # if this passed, a CI job with an unset variable would silently test nothing
    (f"{RUN} --nemesis ''", "--nemesis is ''", ""),
    (f"{RUN} --name ''", "--name is ''", ""),
    (f"{RUN} --store ''", "--store is ''", ""),
    (f"{RUN} --workload ''", "--workload is ''", ""),
    (f"{RUN} --target ''", "--target is ''", ""),
    (f"{RUN} --case ''", "--case is ''", ""),
    (f"{RUN} --nemesis=", "--nemesis is ''", ""),
    ("run --env ''", "--env is ''", ""),
    (f"{RUN} --reporters ''", "--reporters is ''", ""),
    (f"{RUN} --seed ''", "--seed is ''", ""),
    ("soak --seeds 1 --nemesis ''", "--nemesis is ''", ""),
    ("soak --seeds 1 --name ''", "--name is ''", ""),
    ("soak --seeds 1 --label ''", "--label is ''", ""),
    ("soak --seeds 1 --junit ''", "--junit is ''", ""),
    ("soak --seeds 1 --github-summary ''", "--github-summary is ''", ""),
    ("check-determinism --nemesis ''", "--nemesis is ''", ""),
    ("check ''", "PATH is ''", ""),
    ("check . --model ''", "--model is ''", ""),
    ("report ''", "STORE is ''", ""),
    ("report . --output ''", "--output is ''", ""),
    ("trace x --output ''", "--output is ''", ""),
    ("import x --store ''", "--store is ''", ""),
    ("serve ''", "STORE is ''", ""),
]
FILES = [
    ('nemesis = ["kill-leader"]', "'nemesis'", "did you mean nemeses?"),
    ('nemeses = "kill-leader"', "'kill-leader'", "a list of texts"),
    ("time-limit = true", "True", "a number"),
    ("target = kudu", "harness.toml", "fix it"),
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder with a history, and check that no call leaves files in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.edn").write_text("{:process 0, :type :invoke, :f :read, :value nil}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    yield tmp_path
    assert {path.name for path in tmp_path.iterdir()} <= {"harness.toml", "h.edn", "state"}


@pytest.fixture
def answer_to(capsys):
    def call(arguments):
        code = main(arguments)
        out, answer = capsys.readouterr()
        assert (code, out) == (EXIT_USAGE, "")
        assert answer.count("\n") <= 2
        return answer

    return call


@pytest.mark.parametrize(("call", "value", "repair"), CALLS, ids=[each[0] for each in CALLS])
def test_an_answer_quotes_the_value_and_names_the_repair(call, value, repair, answer_to):
    answer = answer_to(shlex.split(call))
    assert value in answer
    assert repair in answer


@pytest.mark.parametrize(("content", "value", "repair"), FILES)
def test_a_wrong_file_of_defaults(content, value, repair, answer_to, here):
    (here / "harness.toml").write_text(content)
    answer = answer_to(RUN.split())
    assert value in answer
    assert repair in answer
