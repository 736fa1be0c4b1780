"""CONTRIBUTING.md refers only to files that exist, and only to targets that the Makefile has."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_path_exists():
    paths = set(re.findall(r"`(\.?[\w.-]+(?:/[\w.-]*)+|\w+\.(?:toml|lock|md))`", TEXT))
    assert len(paths) > 15
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_every_module_that_is_run_exists():
    modules = re.findall(r"`python -m ([\w.]+)", TEXT)
    assert modules
    for module in modules:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def test_every_make_target_exists():
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"`make ([a-z-]+)`", TEXT))
    assert used
    assert used <= rules


def test_it_is_one_page():
    assert len(TEXT.splitlines()) <= 80
