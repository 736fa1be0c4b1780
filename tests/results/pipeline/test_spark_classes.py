"""The archive of Spark's classes: used where it is there, and nowhere else."""

import pytest

from results.spark_classes import archive_of, options

pytest.importorskip("pyspark")
JAVA = "Java 17 (/usr/bin/java)"


def test_java_is_told_of_an_archive_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_SPARK_CLASSES", str(tmp_path))
    assert options(JAVA) == ""
    archive_of(JAVA).touch()
    assert f"-XX:SharedArchiveFile={archive_of(JAVA)} -Xshare:auto" in options(JAVA)
    assert options("Java 21 (/usr/bin/java)") == ""


def test_archives_lie_in_the_cache_and_are_named_after_spark_and_java(tmp_path, monkeypatch):
    monkeypatch.delenv("HARNESS_SPARK_CLASSES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = archive_of(JAVA).relative_to(tmp_path / "catalog-harness").name
    assert name.startswith("spark-")
    assert name.endswith("-Java-17-usr-bin-java.jsa")


def test_a_path_that_java_cannot_be_told_is_left_out(tmp_path, monkeypatch):
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.setenv("HARNESS_SPARK_CLASSES", str(folder))
    archive_of(JAVA).touch()
    assert options(JAVA) == ""
