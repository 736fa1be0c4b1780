"""Spark gives the same tables locally, on a standalone cluster, and through Connect.

A process has a single session, so each other kind of Spark is tested in a separate process.
"""

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from harness.errors import InfrastructureError, UsageError
from harness.support.distributions import plugin_distributions
from results.spark import session as spark
from results.spark.daemon import without_archives
from tests.results.judging.test_executors import mixed_store
from tests.support.programs import run_program
from tests.support.spark_programs import FRUGAL, connect_server, spark_programs, standalone_cluster
from tests.support.spark_session import spark_test

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "local-cluster[1,2,1024]"

SCRIPT = """
import json, sys
from tests.results.spark.test_report import on_spark, said
print(json.dumps(said(*on_spark(*sys.argv[1:]))))
"""


def in_another_process(lake, master, folder, **environment):
    there = shutil.copytree(lake, folder / "new")
    # use another folder, so that the harness is not importable by accident
    variables = {**FRUGAL, "PYTHONPATH": str(ROOT), **environment}
    done = run_program(sys.executable, "-c", SCRIPT, there, master, cwd=folder, **variables)
    told = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(told)[:4000]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def expected(lake, tmp_path_factory):
    from tests.results.spark.test_report import on_duckdb, said

    there = shutil.copytree(lake, tmp_path_factory.mktemp("expected") / "lake")
    checked, _, answers = on_duckdb(there)
    return said(checked, answers)


@spark_test
def test_local_workers_share_common_imports():
    def tell(batches):
        import sys

        before = {"duckdb", "pandas"} <= sys.modules.keys()

        import os
        from pathlib import Path

        import pyarrow as pa
        import pyspark

        before = before and Path(pyspark.__file__).is_file()

        for _ in batches:
            pass
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        said = [before and "results.spark.daemon" in parent]
        yield pa.RecordBatch.from_pydict({"said": said})

    frame = spark.get_spark("local[2]").range(0, 4, 1, 2)
    assert frame.mapInArrow(tell, "`said` BOOLEAN").toArrow()["said"].to_pylist() == [True, True]


def test_archives_are_left_out_of_an_installed_spark_alone(tmp_path, monkeypatch):
    lib = Path(pytest.importorskip("pyspark").__file__).parent / "python" / "lib"
    own = [str(lib / name) for name in ("pyspark.zip", "py4j-src.zip")]
    other = [str(tmp_path / "python" / "lib" / "pyspark.zip"), str(tmp_path / "sent.zip")]
    path = [*own, *other, *sys.path]
    assert without_archives(path) == [*other, *sys.path]
    assert without_archives([*own, str(tmp_path)]) == [*own, str(tmp_path)]
    monkeypatch.setattr("results.spark.daemon.INSTALLED", ("pyspark", "no_such_package"))
    assert without_archives(path) == path


def test_other_workers_import_for_themselves(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    bare = str(bare_python(tmp_path / "bare"))
    module = "spark.python.daemon.module"

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert spark._settings("local[2,3]")[module] == "results.spark.daemon"
    assert module not in spark._settings("spark://there:7077")
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    assert module not in spark._settings("local[2,3]")
    monkeypatch.setattr(sys, "executable", bare)
    assert module not in spark._settings("local[2,3]")


@pytest.fixture
def daemons(tmp_path):
    """Start Spark's own programs from the pip package, and end them later."""
    with spark_programs(tmp_path) as start:
        yield start


def bare_python(folder):
    """Create an interpreter with the dependencies of the harness, but without the harness."""
    import venv

    import msgspec

    venv.create(folder, symlinks=True, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    theirs = Path(msgspec.__file__).parents[1]
    kept = site / "theirs"
    kept.mkdir()
    for entry in theirs.iterdir():
        if "editable" not in entry.name and not entry.name.startswith("catalog_harness"):
            (kept / entry.name).symlink_to(entry)
    (site / "theirs.pth").write_text(f"{kept}\n")
    return folder / "bin" / "python"


EVERY_SPARK = [
    (kind, lacking)
    for kind in ("connect local[2,3]", CLUSTER, "standalone", f"connect {CLUSTER}")
    for lacking in (False, True)
]


@pytest.mark.lake
@spark_test
@pytest.mark.parametrize(
    ("kind", "lacking"),
    [
        EVERY_SPARK[0],
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in EVERY_SPARK[1:]),
    ],
)
def test_every_spark_says_the_same(kind, lacking, lake, expected, daemons, tmp_path):
    python = str(bare_python(tmp_path / "bare")) if lacking else sys.executable
    environment = {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    url = kind
    if kind.startswith("connect "):
        url = connect_server(daemons, kind.split()[1], python)
        environment = {}
    elif kind == "standalone":  # the programs of the cluster come from the pip package
        url = standalone_cluster(daemons, tmp_path / "work")
        environment["PYSPARK_SUBMIT_ARGS"] = "--conf spark.executor.cores=1 pyspark-shell"
    found = in_another_process(lake, url, tmp_path, **environment)
    if kind == "standalone":  # one executor per worker
        assert len(list((tmp_path / "work").glob("app-*/*/stderr"))) == 2
    if not lacking:
        assert found == expected
        return
    # Pure Python gives equal verdicts, but explores and counts keys one by one.
    assert found[0] == expected[0]
    for name, rows in expected[1].items():
        assert len(found[1][name]) == len(rows)
    assert found[1]["verdict_cells"] == expected[1]["verdict_cells"]


# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("local[2]", "local[2,3]"),
        ("local", "local[*,3]"),
        ("local[*]", "local[*,3]"),
        ("local[4,1]", "local[4,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("sc://host:15002", "sc://host:15002"),
    ],
)
def test_urls(given, taken):
    assert spark._checked(given) == taken


@pytest.mark.parametrize("url", ["", "local[]", "host:7077", "local[2", "http://x"])
def test_bad_urls_are_refused(url):
    with pytest.raises(UsageError, match="spark-master is"):
        spark._checked(url)


def fake_java(folder, text, code=0):
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('openjdk version "11.0.2"', "is Java 11; Spark needs 17"), ("what?", "prints no version"),
        (None, "JAVA_HOME"),
    ],
)  # fmt: skip
def test_an_unsuitable_java_is_reported_with_the_fix(text, words, tmp_path, monkeypatch):
    if text:
        fake_java(tmp_path, text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InfrastructureError, match=words) as told:
        spark.check_java()
    assert "install a Java runtime of version 17" in str(told.value)
    assert "\n" not in str(told.value)


def test_java_is_taken_if_it_is_new_and_looked_for_on_path(tmp_path, monkeypatch):
    fake_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    spark.check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="there is none on PATH; install"):
        spark.check_java()


FORBIDDEN = re.compile(
    r"\b(sparkContext|_jvm|_jsc|\.rdd\b|parallelize|broadcast\(|accumulator|applyInPandas|"
    r"mapInPandas|applyInArrow|SparkContext|toLocalIterator)"
)


def test_nothing_is_used_that_connect_lacks():
    sources = [*ROOT.glob("results/**/*.py"), *ROOT.glob("harness/**/*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources
        for line in path.read_text().splitlines()
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_only_sessions_and_the_parent_of_workers_import_pyspark():
    pattern = re.compile(r"^\s*(import|from)\s+pyspark\b", re.MULTILINE)
    for_types = re.compile(r"^if TYPE_CHECKING:\n(?:(?: .*)?\n)+", re.MULTILINE)
    found = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("results/**/*.py"), *ROOT.glob("harness/**/*.py")]
        if pattern.search(for_types.sub("", path.read_text()))
    }
    assert found == {"results/spark/session.py", "results/spark/daemon.py"}


SENT = """
import sys
sys.path.insert(0, sys.argv[1])
import results.judging.verdict_rows
from harness.registry import load_plugin
from harness.store import load_run
found = results.judging.verdict_rows.__file__
assert found.startswith(sys.argv[1]), found
checker = load_plugin("checkers", "linearizable-register")
for path in sys.argv[2:]:
    run = load_run(path)
    print(checker.check(run.history, run.case, time_limit_s=300.0).verdict.value)
"""


@pytest.mark.slow
def test_packages_sent_to_workers_judge_in_a_bare_python(tmp_path):
    store = mixed_store(tmp_path / "store")
    sent = spark.packages_zip(tmp_path, plugin_distributions())
    runs = [store / "n" / f"r{n}" for n in range(3)]
    done = run_program(bare_python(tmp_path / "bare"), "-P", "-c", SENT, sent, *runs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["valid", "invalid", "valid"]


class Workers:
    """A fake session whose workers lack plug-ins, either until these are sent or for good."""

    def __init__(self, *lacking, help_=True):
        self.lacking, self.help, self.sent = " ".join(lacking), help_, []

    def range(self, _):
        return self

    def mapInArrow(self, *_):  # noqa: N802 - Spark's name
        return self

    def toArrow(self):  # noqa: N802 - Spark's name
        return pa.table({"error": ["", ""], "lacking": ["", self.lacking]})

    def addArtifacts(self, path, *, pyfile):  # noqa: N802 - Spark's name
        assert pyfile
        with zipfile.ZipFile(path) as archive:
            self.sent = archive.namelist()
        if self.help:
            self.lacking = ""


def test_workers_are_sent_the_plug_ins_that_they_lack_and_no_others():
    there = Workers()
    assert (spark.prepare_workers(there), there.sent) == (2, [])
    there = Workers("toy-register")
    assert spark.prepare_workers(there) == 2
    tops = {name.partition("/")[0].partition(".")[0] for name in there.sent}
    assert tops == {"toy_register", "toy_register-0"}


def test_missing_plug_ins_are_reported():
    there = Workers("http-register", "toy-register", help_=False)
    told = "do not find the plug-ins of http-register, toy-register, although the driver sent"
    with pytest.raises(InfrastructureError, match=told):
        spark.prepare_workers(there)


DIGEST = """
import sys
sys.path[:0] = sys.argv[1:]
import toy_register
from harness.case import Case
from harness.soak.identity import code_digest
print(toy_register.__file__)
print(code_digest(Case(seed=0, target="toy-register", workload="register"), "sim"))
"""


def test_a_plug_in_that_was_sent_is_the_same_code(tmp_path):
    toy = [each for each in plugin_distributions() if each.name == "toy-register"]
    sent = spark.packages_zip(tmp_path, toy)
    ran = [
        run_program(sys.executable, "-c", DIGEST, *path, PYTHONPATH=str(ROOT))
        for path in ((), (sent,))
    ]
    (here, digest), (there, digest_there) = [done.stdout.split() for done in ran]
    assert str(sent) in there
    assert str(sent) not in here
    assert digest_there == digest
