"""No test is skipped in silence where CI demands its tool."""

import pytest

from tests import requirements


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.17" 2025-10-21', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 1),
        ("no such thing", None),
    ],
)
def test_java_versions(text, version):
    assert requirements.java_version(text) == version


@pytest.mark.parametrize(("demanded", "words"), [("1", "=1, but there is no"), ("", "there is no")])
@pytest.mark.parametrize("mark", ["spark", "browser"])
def test_a_missing_tool_is_named(monkeypatch, mark, demanded, words):
    variable = requirements.NEEDS[mark][0]
    monkeypatch.setitem(requirements.NEEDS, mark, (variable, lambda: "there is no such tool"))
    must, reason = requirements.refusal(mark, {variable: demanded})
    assert (must, words in reason) == (demanded == "1", True)


def test_a_tool_that_is_there_is_no_reason(monkeypatch):
    monkeypatch.setitem(requirements.NEEDS, "spark", ("HARNESS_REQUIRE_SPARK", lambda: None))
    assert requirements.refusal("spark", {"HARNESS_REQUIRE_SPARK": "1"}) is None


def test_java_8_is_not_enough(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    requirements.missing_spark.cache_clear()
    try:
        assert "is Java 1; Spark 4 needs 17 or 21" in requirements.missing_spark()
    finally:
        requirements.missing_spark.cache_clear()
