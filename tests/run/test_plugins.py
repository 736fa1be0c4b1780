"""An error in a third-party plug-in gives one line, and does not affect other plug-ins."""

import sys

import pytest

from harness.case import Case
from harness.cli import main
from harness.errors import UsageError
from harness.plan.random_case import expand_any
from harness.registry import (
    GROUPS,
    ExtraMissingError,
    load_all,
    load_plugin,
    plug_in_point,
    plugin_names,
)
from tests.support.distributions import installed
from tests.support.programs import python, run_program

MODULE = """
import sys
from harness.plugins import Nemesis
class Old(Nemesis):
    api_version = 0
    plan = aim = None
class Hollow(Nemesis):
    api_version = 2
    name = "hollow"
class Loose(Nemesis):
    api_version, name, doc, requires = 2, "loose", "", None
    plan = aim = lambda *_: None
class Stranger:
    api_version, name, doc, requires = 2, "stranger", "", frozenset()
    plan = aim = lambda *_: None
class Misnamed(Nemesis):
    api_version, name, doc, requires = 2, "other", "", frozenset()
    plan = aim = lambda *_: None
def Raises():
    raise ValueError("boom")
def Exits():
    sys.exit(3)
"""
POINTS = """[harness.nemeses]
old = strange_plugins:Old
hollow = strange_plugins:Hollow
loose = strange_plugins:Loose
stranger = strange_plugins:Stranger
misnamed = strange_plugins:Misnamed
raises = strange_plugins:Raises
exits = strange_plugins:Exits
absent = no_such_module:X
[harness.environments]
nowhere = strange_plugins:Raises
"""


@pytest.fixture
def strange_plugins(tmp_path, monkeypatch):
    """Install a distribution of broken plug-ins."""
    with installed(tmp_path, monkeypatch, "strange", MODULE, POINTS):
        yield


@pytest.mark.usefixtures("strange_plugins")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old", "has api_version 0"),
        ("hollow", "lacks aim, plan"),
        ("stranger", r"not a harness.plugins.Nemesis; write `class Stranger\(Nemesis\)`"),
        ("loose", "has requires=None; it must be a set of Capabilities"),
        ("misnamed", "has name='other'; it must be the key of its entry point, 'misnamed'"),
        ("strange:misnamed", "must be the key of its entry point, 'misnamed'"),
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
    assert main(["list", "all"]) == 0
    assert capsys.readouterr().out.count("BROKEN") == 9


@pytest.mark.usefixtures("strange_plugins")
def test_any_nemesis_is_drawn_from_those_that_load():
    toy = Case(seed=1, target="toy-register", workload="register", nemeses=("any",))
    drawn = expand_any(toy, load_plugin("environments", "sim"))
    assert "kill-leader" in drawn.nemeses
    assert "raises" not in drawn.nemeses


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


NEEDY = """
from checkers.foreign.model import LinearizabilityModel
def Fast():
    import no_such_speedups
def Sdk():
    raise ModuleNotFoundError("No module named 'docker'", name="docker")
class Blank(LinearizabilityModel):
    name, doc = "blank", ""
    operation = None
"""
NEEDS = """[harness.nemeses]
fast = needy_plugins:Fast
sdk = needy_plugins:Sdk
[harness.verbs]
quick = no_such_speedups
[harness.checkers]
blank = needy_plugins:Blank
"""
REQUIRED = """Requires-Dist: another; extra == "slow"
Requires-Dist: no-such-speedups[x]>=1 ; extra == 'fast'
"""


@pytest.fixture
def needy_plugins(tmp_path, monkeypatch):
    """Install a distribution whose plug-ins lack a package."""
    with installed(tmp_path, monkeypatch, "needy", NEEDY, NEEDS, REQUIRED):
        yield


# the Docker SDK leaves a socket unclosed if it cannot reach an engine
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("needy_plugins")
def test_a_plugin_that_needs_an_extra_is_not_broken(capsys):
    extras = {"fast": "needy[fast]", "sdk": "catalog-harness[docker]"}
    for name, extra in extras.items():
        with pytest.raises(ExtraMissingError) as caught:
            load_plugin("nemeses", name)
        assert f"pip install '{extra}'" in str(caught.value)
    assert main(["quick"]) == 254
    assert "pip install 'needy[fast]'" in capsys.readouterr().err
    main(["list", "nemeses"])
    main(["doctor"])
    output = capsys.readouterr().out
    assert [output.count(f"pip install '{extra}'") for extra in extras.values()] == [2, 2]
    assert ("BROKEN" in output, "FIX   plug-ins nemeses" in output) == (False, False)


@pytest.mark.usefixtures("needy_plugins")
def test_a_model_without_a_specification_is_refused_when_it_is_loaded():
    with pytest.raises(UsageError, match=r"'blank' of checkers .* lacks specification"):
        load_plugin("checkers", "blank")


@pytest.mark.parametrize("group", GROUPS)
def test_an_unknown_name_is_answered_with_names_that_exist(group):
    near, *_ = plugin_names(group)
    for wrong, words in (("zzz", "one of: "), (near[:-1], "did you mean ")):
        with pytest.raises(UsageError, match=rf"^no \w+( \w+)? '{wrong}'; {words}.* shows all"):
            load_plugin(group, wrong)


PROPER_NAMES = {"Delta", "Kudu's", "A"}


@pytest.mark.parametrize("group", GROUPS)
def test_the_line_of_a_plugin_is_a_phrase_without_a_stop(group):
    for _, plugin in load_all(group):
        begin, *_, end = plugin.doc.split()
        assert not end.endswith("."), plugin.doc
        assert not begin.istitle() or begin in PROPER_NAMES, plugin.doc


MANY = """
from harness.faults.nemesis_from_text import AimedNemesis
from nemesis.none import NoNemesis
_HIDDEN = AimedNemesis("hidden", "", "kill one")
CUT = AimedNemesis("cut-node", "", "cut one from client")
ALL = AimedNemesis("kill-all", "", "kill all")
class Own(NoNemesis):
    name = "own"
"""
MODULES = """[harness.nemeses]
mine = many_plugins
broken = no_such_module
"""


def test_a_module_is_as_many_nemeses_as_it_has(tmp_path, monkeypatch):
    before = set(plugin_names("nemeses"))
    with installed(tmp_path, monkeypatch, "many", MANY, MODULES):
        assert set(plugin_names("nemeses")) - before == {
            "broken", "cut-node", "many:kill-all", "own",
        }  # fmt: skip
        assert load_plugin("nemeses", "cut-node").name == "cut-node"
        assert load_plugin("nemeses", "own").name == "own"
        assert plug_in_point("nemeses", "many:kill-all").value == "many_plugins:ALL"
        assert plug_in_point("nemeses", "kill-all").value == "nemesis.families:KILL_ALL"
        with pytest.raises(UsageError, match="does not load: ModuleNotFoundError"):
            load_plugin("nemeses", "broken")


CLASHES = """[harness.nemeses]
kill-all = {name}_plugins:Hollow
everything = {name}_plugins:Hollow
[harness.workloads]
register = {name}_plugins:Raises
"""


@pytest.fixture
def clashing_plugins(tmp_path, monkeypatch):
    """Install two distributions that reuse names of the harness and share one name."""
    with (
        installed(tmp_path / "a", monkeypatch, "old", MODULE, CLASHES.format(name="old")),
        installed(tmp_path / "b", monkeypatch, "odd", MODULE, CLASHES.format(name="odd")),
    ):
        yield


@pytest.mark.usefixtures("clashing_plugins")
def test_a_name_that_is_taken_is_the_built_in_one_and_the_others_can_be_asked_for(capsys):
    assert load_plugin("nemeses", "kill-all").name == "kill-all"
    assert {"odd:kill-all", "old:kill-all"} <= set(plugin_names("nemeses"))
    for other in ("odd:kill-all", "old:kill-all"):
        with pytest.raises(UsageError, match=f"{other[:3]}_plugins:Hollow.* lacks"):
            load_plugin("nemeses", other)
    assert main(["list"]) == 0


@pytest.mark.usefixtures("clashing_plugins")
def test_a_name_that_only_others_claim_is_ambiguous():
    assert "everything" not in plugin_names("nemeses")
    with pytest.raises(UsageError, match="odd:everything, old:everything"):
        load_plugin("nemeses", "everything")


@pytest.mark.usefixtures("strange_plugins")
def test_a_plugin_can_be_asked_for_with_its_package_also_without_a_clash():
    with pytest.raises(UsageError, match="'strange:old' of nemeses has api_version 0"):
        load_plugin("nemeses", "strange:old")
    assert load_plugin("nemeses", "catalog-harness:kill-all").name == "kill-all"
    assert "strange:old" not in plugin_names("nemeses")


# the Docker SDK leaves a socket unclosed if it cannot reach an engine
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("clashing_plugins")
def test_doctor_names_all_claimants_of_a_name(capsys):
    main(["doctor"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note")]
    assert len(lines) == 3
    assert all(f"{name}:" in line for line in lines for name in ("odd", "old"))


VERB = """
def main(arguments):
    print("theirs")
    return 0
"""


def test_no_package_takes_a_verb_of_ours(tmp_path, monkeypatch, capsys):
    points = "[harness.verbs]\nlist = verbs_plugins\n"
    with installed(tmp_path, monkeypatch, "verbs", VERB, points):
        assert main(["list"]) == 0
        assert "theirs" not in capsys.readouterr().out
        assert main(["verbs:list"]) == 0
        assert capsys.readouterr().out == "theirs\n"


LOOK = """
import harness.registry as registry
from harness.env import load_entry
from harness.errors import UsageError
for group, name in (("workloads", "register"), ("targets", "kudu"), ("reporters", "page")):
    print(registry.load_plugin(group, name).api_version > 0)
print(callable(load_entry("targets.kudu.master.node:main", "m1")))
import workloads.mine
print(workloads.mine.VALUE)
"""


@pytest.mark.parametrize("packaged", [True, False])
def test_folders_of_a_user_hide_nothing_of_ours_and_ours_nothing_of_theirs(tmp_path, packaged):
    for name in ("workloads", "results", "targets", "checkers"):
        (tmp_path / name).mkdir()
        if packaged:
            (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "workloads" / "mine.py").write_text("VALUE = 'mine'")
    assert python(LOOK, cwd=tmp_path).split() == ["True"] * 4 + ["mine"]


@pytest.mark.parametrize("file", ["workloads.py", "workloads/register.py"])
def test_a_module_of_a_user_that_hides_ours_is_named_with_the_way_out(tmp_path, file):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    look = "from harness.registry import load_plugin as load; load('workloads', 'register')"
    done = run_program(sys.executable, "-c", look, cwd=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert [file in last, " -P" in last, "UsageError" in last] == [True] * 3
