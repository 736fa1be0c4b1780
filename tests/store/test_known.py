"""Entries of a TOML file with known failures match signatures by their first parts."""

import pytest

from harness.cli.project import known_failures
from harness.errors import UsageError
from harness.verdict.known import KnownFailure, KnownFailures, read_known

RULE = KnownFailure("c · stale-read", "T-1", fails=False)
CUT = KnownFailure("c · stale-read · cut", "T-2", "only if a leader is cut off")
KNOWN = KnownFailures((RULE, CUT))


@pytest.mark.parametrize(
    ("signature", "entry"),
    [
        ("c · stale-read · kill", RULE),
        ("c · stale-read · kill · get", RULE),
        ("c · stale-read", RULE),
        ("c · stale-read · cut", CUT),
        ("c · stale-reads · cut", None),
        ("c", None),
        ("", None),
    ],
)
def test_the_entry_with_the_most_parts_covers_a_signature(signature, entry):
    assert KNOWN.of(signature) == entry
    assert KNOWN.excuses(signature) == (entry is RULE)


def test_entries_that_cover_nothing_are_gone():
    assert KNOWN.gone(["c · stale-read · cut", "other"]) == [RULE]
    assert KNOWN.gone([]) == [RULE, CUT]


def test_only_with_entries_is_a_failure_new():
    assert KNOWN.mark("other") == " [new]"
    assert KNOWN.mark("c · stale-read · cut") == " [known: T-2, only if a leader is cut off]"
    assert KnownFailures().mark("other") == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[known]]\nsignature = 'a'", "ticket"),
        ("[[known]]\nsignature = 'a'\nticket = 'T'\nowner = 'me'", "owner"),
        ("[[known]]\nsignature = 'a'\nticket = 7", "str"),
        ("[[known]]\nsignature = ''\nticket = 'T'", "give both"),
        ("known = 3", "array"),
        ("[[known]", "cannot be read"),
        ("store = 's'", "'store'"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, words):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_known(path)


def test_a_file_that_is_named_must_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not known_failures(None)
    with pytest.raises(UsageError, match="cannot be read"):
        known_failures(tmp_path / "absent.toml")
