"""The archive of Spark's classes: used where it fits, made where it lacks, and never in the way."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.errors import InfrastructureError
from results.report import verb as report_verb
from results.spark import classes_making as spark_classes_making
from results.spark.classes import HOME, archive_of, options
from results.spark.classes_making import KEPT, LOCK, main, make, make_soon
from tests.spark_support import spark_test

pytest.importorskip("pyspark")
JAVA = "Java 17 (/usr/bin/java)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where archives go; nothing but them."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(HOME, str(tmp_path / "classes"))
    return tmp_path / "classes"


# Which one, and whether it is used ---------------------------------------------------------------


def test_java_is_told_of_an_archive_that_is_there(folder):
    assert options(JAVA) == ""
    folder.mkdir()
    archive_of(JAVA).touch()
    os.utime(archive_of(JAVA), (1, 1))
    assert f"-XX:SharedArchiveFile={archive_of(JAVA)} -Xshare:auto" in options(JAVA)
    assert archive_of(JAVA).stat().st_mtime > 1, "who is used last goes last"
    assert options("Java 21 (/usr/bin/java)") == ""


def test_archives_lie_in_the_cache_and_are_named_after_spark_and_java(tmp_path, monkeypatch):
    monkeypatch.delenv(HOME)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = archive_of(JAVA).relative_to(tmp_path / "catalog-harness").name
    assert name.startswith("spark-")
    assert "-java-17-" in name


def test_an_archive_belongs_to_its_jars_their_paths_and_its_java(folder, tmp_path, monkeypatch):
    one, java = tmp_path / "one", tmp_path / "bin" / "java"
    (one / "jars").mkdir(parents=True)
    java.parent.mkdir()
    java.touch()
    for name in ("a.jar", "b.jar"):
        (one / "jars" / name).write_text(name)
    other = shutil.copytree(one, tmp_path / "other")  # with its times: nothing but the path differs

    def named():
        return archive_of(f"Java 17 ({java})")

    monkeypatch.setenv("SPARK_HOME", str(one))
    found = [named()]
    assert named() == found[0], "the same, as long as nothing changes"
    monkeypatch.setenv("SPARK_HOME", str(other))
    found.append(named())
    (other / "jars" / "c.jar").touch()
    found.append(named())
    os.utime(other / "jars" / "a.jar", (1, 1))
    found.append(named())
    java.write_text("newer")
    found.append(named())
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found.append(named())
    assert len(set(found)) == 6
    assert {path.parent for path in found} == {folder}


def test_a_path_that_java_cannot_be_told_is_left_out(tmp_path, monkeypatch):
    for name in ("a b", "a:b", 'a"b'):
        monkeypatch.setenv(HOME, str(tmp_path / name))
        assert archive_of(JAVA) is None
        assert options(JAVA) == ""
        assert make_soon(JAVA) is None


def test_who_has_no_home_has_no_archive(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(HOME)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", nobody)
    assert archive_of(JAVA) is None


# When it is made ---------------------------------------------------------------------------------


@pytest.fixture
def maker(folder, tmp_path, monkeypatch):
    """Stands for the process that makes it: it says how it was begun, and ends when it is told."""
    told = tmp_path / "told"
    os.mkfifo(told)
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/begun\nread -r word < {told}\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    def end(process):
        told.write_text("end\n")
        assert process.wait(60) == 0

    return SimpleNamespace(end=end, begun=tmp_path / "begun")


def test_one_of_two_reports_at_once_makes_it_and_says_so(folder, maker, capfd):
    process = make_soon(JAVA)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert str(folder) in said
    assert "180 MB" in said
    assert "HARNESS_SPARK_CLASSES=off" in said
    assert make_soon(JAVA) is None, "the first one holds the lock"
    maker.end(process)
    assert maker.begun.read_text() == "-P -m results.spark.classes_making --behind\n"
    assert capfd.readouterr() == ("", "")
    archive_of(JAVA).touch()
    assert make_soon(JAVA) is None, "it is there"


def test_who_was_killed_is_followed_by_the_next(folder, maker):
    process = make_soon(JAVA)
    process.kill()
    process.wait()
    again = make_soon(JAVA)
    maker.end(again)
    assert not archive_of(JAVA).exists()


@pytest.mark.parametrize("why", ["off", "CI", "failed before", "full", "read only"])
def test_nothing_is_begun_nor_said_where_it_should_not_be(
    why, folder, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(spark_classes_making, "_begin", lambda *_: pytest.fail("begun"))
    if why == "off":
        monkeypatch.setenv(HOME, "off")
    elif why == "CI":
        monkeypatch.setenv("CI", "true")
    elif why == "failed before":
        folder.mkdir()
        archive_of(JAVA).with_suffix(".failed").touch()
    elif why == "full":
        usage = SimpleNamespace(free=spark_classes_making.SPACE_MIN - 1)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    else:

        def refused(*_args, **_options):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(spark_classes_making.Path, "mkdir", refused)
    assert make_soon(JAVA) is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("engine", "executor", "java", "offered"),
    [
        ("duckdb", "pool", JAVA, []),
        ("spark", "spark", JAVA, [JAVA]),
        ("duckdb", "spark", JAVA, [JAVA]),
        ("spark", "spark", "", []),  # a cluster, an archive that is there, or options of the user's
    ],
)
def test_it_is_offered_after_the_answer_of_a_report_on_spark(
    engine, executor, java, offered, monkeypatch, capsys
):
    found = []
    summary = SimpleNamespace(engine=engine, executor=executor, exit_code=1, verdict="invalid")
    monkeypatch.setattr(report_verb, "is_lake", lambda _: True)
    monkeypatch.setattr(report_verb, "_report_lake", lambda *_: (summary, None, "page"))
    monkeypatch.setattr("results.report.summary.text_of", lambda *_: ["the answer"])
    monkeypatch.setattr("results.spark.session.java_without_classes", lambda: java)
    monkeypatch.setattr(
        "results.spark.classes_making.make_soon",
        lambda java: found.append((java, capsys.readouterr().out)),
    )
    assert report_verb.main(["lake"]) == 1
    assert found == [(java, "the answer\n") for java in offered]


# How it is made ----------------------------------------------------------------------------------


def wrote(content):
    """A job whose Java writes this."""

    def job(part):
        part.write_bytes(content)
        return "what Java said"

    return job


def test_old_archives_and_parts_go_when_a_new_one_comes(folder, monkeypatch):
    folder.mkdir()
    for age in range(KEPT + 2):
        for suffix in (".jsa", ".failed"):
            other = folder / f"spark-{age}{suffix}"
            other.touch()
            os.utime(other, (1000 - age, 1000 - age))
    (folder / "spark-killed.part").mkdir()
    (folder / "spark-killed.part" / "classes").write_bytes(b"half")
    (folder / "image.tar").touch()  # somebody else's
    why = archive_of(JAVA).with_suffix(".failed")
    why.touch()
    monkeypatch.setattr(spark_classes_making, "_run_job", wrote(b"classes"))
    make(archive_of(JAVA))
    assert archive_of(JAVA).read_bytes() == b"classes"
    assert {path.name for path in folder.iterdir()} == {
        archive_of(JAVA).name,
        "image.tar",
        *(f"spark-{age}{suffix}" for age in range(KEPT - 1) for suffix in (".jsa", ".failed")),
    }


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0 a header comes last"])
def test_what_java_did_not_finish_is_never_used_and_is_told(folder, content, monkeypatch, capfd):
    monkeypatch.setattr(spark_classes_making, "_run_job", wrote(content))
    folder.mkdir()
    with pytest.raises(InfrastructureError, match="what Java said"):
        make(archive_of(JAVA))
    why = archive_of(JAVA).with_suffix(".failed")
    assert [*folder.iterdir()] == [why]
    assert "what Java said" in why.read_text()
    assert make_soon(JAVA) is None, "it is not tried again and again"


def test_whoever_interrupts_it_leaves_nothing(folder, monkeypatch):
    def interrupted(part):
        part.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(spark_classes_making, "_run_job", interrupted)
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        make(archive_of(JAVA))
    assert [*folder.iterdir()] == []


def test_the_command_makes_it_anew_and_says_where(folder, monkeypatch, capsys):
    monkeypatch.setattr("results.spark.session.check_java", lambda: JAVA)
    monkeypatch.setattr(spark_classes_making, "_run_job", wrote(b"new"))
    folder.mkdir()
    archive_of(JAVA).write_bytes(b"old")
    assert main([]) == 0
    assert capsys.readouterr().out == f"{archive_of(JAVA)}: 0 MB\n"
    assert archive_of(JAVA).read_bytes() == b"new"
    monkeypatch.setenv(HOME, "off")
    assert main([]) == 1
    assert HOME in capsys.readouterr().err


def test_behind_a_report_it_is_not_made_twice(folder, monkeypatch):
    monkeypatch.setattr("results.spark.session.check_java", lambda: JAVA)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(spark_classes_making, "_run_job", lambda _: pytest.fail("made"))
    folder.mkdir()
    archive_of(JAVA).touch()
    assert main(["--behind"]) == 0


TELL = """
import os, sys
from pathlib import Path
from results.spark.session import get_spark, java_without_classes
from results.spark.classes_making import make_soon
spark = get_spark("local[1]")
maps = Path(f"/proc/{spark._sc._gateway.proc.pid}/maps").read_text()
print(sys.argv[1] in maps, bool(java_without_classes()))
spark.stop()
if java_without_classes():
    make_soon(java_without_classes())
"""


@spark_test
def test_java_maps_what_was_made_behind_the_first_session(folder):
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    words = [sys.executable, "-c", TELL, str(folder)]

    def told():
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split(), done.stderr

    before, said = told()
    assert before == ["False", "True"]
    assert "HARNESS_SPARK_CLASSES=off" in said
    with (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until who makes it has come to its end
    (archive,) = folder.glob("spark-*.jsa")
    assert stat.S_ISREG(archive.stat().st_mode)
    assert {path.name for path in folder.iterdir()} == {archive.name, LOCK}
    after, said = told()
    assert after == ["True", "False"]
    assert "HARNESS_SPARK_CLASSES" not in said
