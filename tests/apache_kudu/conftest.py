"""Fixtures that make downloads of `harness fetch` look present without fetching anything."""

import pytest

from targets.apache_kudu import target
from targets.apache_kudu.javaclient import fetching


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Pretend that every version of Kudu was fetched; return the folder that has them."""
    monkeypatch.setattr(target, "require", lambda version: tmp_path / version)
    monkeypatch.setattr(target, "require_libraries", lambda _: None)
    return tmp_path


@pytest.fixture
def java_client(monkeypatch):
    for module, name in ((target, "require_java"), (fetching, "require")):
        monkeypatch.setattr(module, name, lambda: ("java", "classes"))
