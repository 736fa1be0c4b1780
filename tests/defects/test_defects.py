"""Each defect lists tests. At least one of them must fail while the defect is planted.

`python -m tests.defects` prints which tests fail.
"""

import re
from pathlib import Path

import pytest

from tests.defects.defects import DEFECTS
from tests.defects.runs import ROOT, noticed_by

PAGE = ROOT / "docs" / "architecture.md"


def cases(*, heavy):
    return [pytest.param(each, id=each.name) for each in DEFECTS.values() if each.heavy is heavy]


@pytest.mark.slow
@pytest.mark.parametrize("defect", cases(heavy=False))
def test_the_quick_tier_notices(defect):
    assert noticed_by(defect)


@pytest.mark.process
@pytest.mark.xdist_group("process")
@pytest.mark.parametrize("defect", cases(heavy=True))
def test_the_second_tier_notices(defect):
    assert noticed_by(defect)


def test_the_page_lists_all():
    rows = re.findall(
        r"^\| `([\w-]+)` \| (.+) \| (quick|second) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert rows == [
        (each.name, each.title, "second" if each.heavy else "quick") for each in DEFECTS.values()
    ]


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=lambda defect: defect.name)
def test_a_defect_names_tests_that_exist(defect):
    for test in defect.tests:
        assert Path(ROOT, test.partition("::")[0]).exists(), test
