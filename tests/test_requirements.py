"""A missing tool skips its tests, or fails them if CI demands the tool."""

import importlib.metadata
from pathlib import Path

import pytest

from harness.cli import main
from results.spark.diagnosis import SparkAndJava
from tests import requirements

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(("demanded", "words"), [("1", "=1, but there is no"), ("", "there is no")])
@pytest.mark.parametrize(
    "mark", ["docker", "spark", "browser", "etcd", "faketime", "lake", "s3", "hive"]
)
def test_a_missing_tool_is_named(monkeypatch, mark, demanded, words):
    variable = requirements.NEEDS[mark][0]
    monkeypatch.setitem(requirements.NEEDS, mark, (variable, lambda: "there is no such tool"))
    must, reason = requirements.refusal(mark, {variable: demanded})
    assert (must, words in reason) == (demanded == "1", True)


def test_a_tool_that_is_there_is_no_reason(monkeypatch):
    monkeypatch.setitem(requirements.NEEDS, "spark", ("HARNESS_REQUIRE_SPARK", lambda: None))
    assert requirements.refusal("spark", {"HARNESS_REQUIRE_SPARK": "1"}) is None


@pytest.fixture
def java(monkeypatch, tmp_path):
    """Fake a PySpark. Return a function that installs a Java that prints the given version."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.1.0")

    def make(says):
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    return make


@pytest.mark.parametrize(
    ("says", "there", "words"),
    [
        ('openjdk version "17.0.17" 2025-10-21', True, "Java 17 ("),
        ('openjdk version "21" 2023-09-19', True, "Java 21 ("),
        ('java version "1.8.0_392"', False, "is Java 1; Spark needs 17 or newer: install"),
        ("no such thing", False, "prints no version"),
    ],
)
def test_doctor_on_java(java, says, there, words):
    java(says)
    found, detail = SparkAndJava().look()
    assert (found, words in detail) == (there, True), detail
    assert ("`harness report --engine duckdb` does without" in detail) == (not there)


def test_doctor_on_no_java(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.1.0")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, detail = SparkAndJava().look()
    assert (found, "apt install openjdk-17-jre-headless" in detail) == (False, True)


def test_doctor_on_no_pyspark(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert SparkAndJava().look()[1].startswith("no PySpark; pip install 'catalog-harness[spark]'")


# If no engine answers, the Docker SDK leaves its socket open (`UnixHTTPConnection.connect`).
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_optional_tools_do_not_fail_doctor(monkeypatch, capsys):
    monkeypatch.setattr(SparkAndJava, "look", lambda _: (False, "nothing here"))
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    code = main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert f"none  {'spark':24} nothing here" in lines
    (native,) = [line for line in lines if line[6:].startswith("native-core")]
    assert "switched off by HARNESS_NATIVE=0" in native or "absent" in native
    assert native.startswith("none")
    broken = [line for line in lines if line.startswith("FIX") and "environment" not in line]
    assert (code == 0) == (not broken)


GROUPED = """
import os
import pytest

@pytest.mark.parametrize("n", range(8))
@pytest.mark.parametrize("group", [
    pytest.param("a", marks=pytest.mark.xdist_group("a")),
    pytest.param("b", marks=pytest.mark.xdist_group(name="b")),
])
def test_it(n, group):
    print("ran", group, os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.slow
def test_groups_of_tests_stay_together(pytester):
    root = Path(__file__).parent.parent
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    pytester.makeconftest(
        f"import sys\nsys.path.insert(0, {str(root)!r})\npytest_plugins = ['tests.xdist_groups']\n"
    )
    pytester.makepyfile(GROUPED)
    result = pytester.runpytest_subprocess("-n2", "--dist=loadgroup", "-rP")
    result.assert_outcomes(passed=16)
    where = {tuple(line.split()[1:]) for line in result.outlines if line.startswith("ran ")}
    assert len(where) == 2
    assert {group for group, _ in where} == {"a", "b"}
