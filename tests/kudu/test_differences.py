"""The documentation lists each known difference from real Kudu."""

import re
from pathlib import Path

from harness.registry import load_plugin
from targets.kudu.differences import DIFFERENCES, KUDU

PAGE = Path(__file__).parents[2] / "docs" / "twin.md"


def test_the_page_lists_each_known_difference():
    section = PAGE.read_text().partition("## Bundled and real Kudu")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)
    assert listed == [each.name for each in DIFFERENCES]


def test_known_differences_are_narrow_and_of_the_original():
    target = load_plugin("targets", "kudu")
    assert tuple(target.known_differences()) == DIFFERENCES
    assert target.original == KUDU
    for each in DIFFERENCES:
        assert each.original == KUDU
        assert not each.covers("message/create/NOT_AUTHORIZED/NOT_AUTHORIZED")
        assert not each.covers("outcome/create/ok")
        for more in (None, "original", "re-creation"):
            assert not each.covers("verdict/crash invalid", case="ddl-kill", more=more)
            assert not each.covers("outcome/create/failed", more=more)
            assert not each.covers("message/write/RPC/SENT", more=more)


def test_the_known_difference_of_a_request_covers_only_this_request():
    (empty,) = [each for each in DIFFERENCES if each.name == "empty-column"]
    assert empty.covers('request/7 alter {"name":"a","steps":[["add",""]]}')
    assert not empty.covers('request/7 alter {"name":"a","steps":[["add","c1"]]}')
    assert not empty.covers('request/7 create {"name":"","columns":[]}')


def test_a_difference_of_the_client_explains_only_the_side_that_has_more():
    def names(row, more):
        return [each.name for each in DIFFERENCES if each.covers(row, more=more)]

    assert names("message/alter/RPC/NOT_SENT", "original") == ["several-requests"]
    assert names("message/alter/RPC/NOT_SENT", "re-creation") == []
    assert names("message/alter/RPC/SENT", "re-creation") == ["change-at-once"]
    assert names("message/alter/RPC/SENT", "original") == []
    assert names("outcome/delete/failed", "original") == ["read-before-change"]
    assert names("outcome/delete/info", "original") == []
    assert names("message/get/NOT_THE_LEADER/ILLEGAL_STATE", "re-creation") == [
        "look-before-request"
    ]
    assert names("message/scan/NOT_THE_LEADER", "original") == ["unconfirmed-term"]
