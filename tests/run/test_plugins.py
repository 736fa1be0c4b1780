"""Plug-ins of others: whatever is wrong with one is one line, and harms nobody else."""

import pytest

from harness.cli import main
from harness.errors import UsageError
from harness.registry import load_plugin, plugin_names
from tests.distributions import installed

MODULE = """
import sys
class Old:
    api_version = 0
class Hollow:
    api_version = 2
    name = "hollow"
def Raises():
    raise ValueError("boom")
def Exits():
    sys.exit(3)
"""
POINTS = """[harness.nemeses]
old = strange_plugins:Old
hollow = strange_plugins:Hollow
raises = strange_plugins:Raises
exits = strange_plugins:Exits
absent = no_such_module:X
[harness.environments]
nowhere = strange_plugins:Raises
"""


@pytest.fixture
def strange_plugins(tmp_path, monkeypatch):
    """A distribution full of plug-ins that do not work."""
    with installed(tmp_path, monkeypatch, "strange", MODULE, POINTS):
        yield


@pytest.mark.usefixtures("strange_plugins")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old", "has api_version 0"),
        ("hollow", "lacks doc, requires, plan, aim"),
        ("raises", "does not load: ValueError"),
        ("exits", "does not load: SystemExit"),
        ("absent", "does not load: ModuleNotFoundError"),
    ],
)
def test_a_broken_plugin_is_named_with_the_reason(name, words):
    with pytest.raises(UsageError, match=words):
        load_plugin("nemeses", name)


@pytest.mark.usefixtures("strange_plugins")
def test_broken_plugins_are_lines_of_the_list(capsys):
    assert main(["list"]) == 0
    assert capsys.readouterr().out.count("BROKEN") == 6


@pytest.mark.usefixtures("strange_plugins")
def test_a_broken_environment_is_no_alternative(capsys):
    assert main(["run", "--env", "process", "--fault", "shape one from others duplicate=5%"]) == 254
    assert "use --env docker, --env sim\n" in capsys.readouterr().err


@pytest.mark.usefixtures("strange_plugins")
def test_the_plugins_of_others_can_be_left_out(monkeypatch):
    assert "old" in plugin_names("nemeses")
    monkeypatch.setenv("HARNESS_NO_PLUGINS", "1")
    assert "old" not in plugin_names("nemeses")
    assert "kill-leader" in plugin_names("nemeses")
