"""Pages and headings to which code and messages refer exist."""

import re
from pathlib import Path

from tests.docs.pages import ROOT

SOURCES = ("harness", "targets", "nemesis", "checkers", "workloads", "results", "bench", "examples")
NAMED = re.compile(r"docs/[\w/.-]+\.(?:md|sh|yml|yaml|ipynb|png)(?:#[\w-]+)?")


def slugs(page):
    """Return the anchors of a page's headings, as mkdocs generates them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def missing(text):
    for reference in NAMED.findall(text):
        path, _, anchor = reference.partition("#")
        page = ROOT / path
        if not page.is_file() or (anchor and anchor not in slugs(page)):
            yield reference


def test_pages_that_code_names_exist():
    files = [ROOT / "_harness_pytestplugin.py", ROOT / "Makefile", ROOT / "pyproject.toml"]
    files += [path for name in SOURCES for path in Path(ROOT, name).rglob("*.py")]
    read = {path: NAMED.findall(path.read_text(encoding="utf-8")) for path in files}
    assert sum(map(len, read.values())) > 10
    assert {str(path): list(missing(" ".join(found))) for path, found in read.items()} == {
        str(path): [] for path in files
    }


def test_a_reference_that_leads_nowhere_is_noticed():
    assert list(missing("see docs/fautls.md and docs/faults.md#no-such-heading")) == [
        "docs/fautls.md",
        "docs/faults.md#no-such-heading",
    ]
