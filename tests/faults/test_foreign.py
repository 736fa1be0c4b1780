"""Some faults reach foreign programs. Other faults are refused before anything starts."""

import json
from types import SimpleNamespace

import pytest

from harness.cli import main
from harness.cluster import CLOCKS, ENV_NODES_ONLY, Capability, NodeSpec
from harness.errors import UsageError
from harness.faults.nemesis_from_text import AimedNemesis, load_nemesis
from harness.plan.reach import foreign_clocks, refuse_nodes
from nemesis.none import NoNemesis

FOREIGN = NodeSpec(name="db", role="db", ports=(), command=("postgres",))
OTHER = NodeSpec(name="a1", role="app", ports=(), command=("app",))
OURS = NodeSpec(name="m1", role="master", ports=(), entry="x:main")
NODES = {spec.name: spec for spec in (FOREIGN, OTHER, OURS)}


@pytest.mark.parametrize(
    ("words", "hit"),
    [
        ("clock node:db offset=5s", {"db"}),
        ("clock role:app drift=500ppm", {"a1"}),
        ("clock one@db offset=5s", {"db"}),
        ("clock leader offset=5s", {"db", "a1"}),  # which node leads is only known later
        ("clock role:master offset=5s", set()),
        ("clock node:m1 offset=5s", set()),
        ("kill node:db", set()),
        ("cut node:db from others", set()),
        ("disk node:db full=yes", set()),
    ],
)
def test_only_those_that_may_be_hit_need_a_clock_of_ours(words, hit):
    assert foreign_clocks({words: load_nemesis(words)}, list(NODES.values())) == hit


def test_all_sentences_of_a_nemesis_count_and_unknown_ones_may_hit_any_node():
    two = AimedNemesis("two", "", "clock node:db offset=5s", "kill node:a1")
    assert two.may_hit(NODES, CLOCKS) == ["db"]

    class Stranger(NoNemesis):
        requires = frozenset({Capability.CLOCK_SKEW})

    assert foreign_clocks({"stranger": Stranger()}, list(NODES.values())) == {"db", "a1"}


class Anything:
    name = "anything"
    groups = ()


@pytest.mark.parametrize(
    ("words", "reach", "refused"),
    [
        ("clock node:db offset=5s", (), "db"),
        ("clock node:db offset=5s", CLOCKS, None),
        ("clock node:m1 offset=5s", (), None),
        ("disk all full=yes", CLOCKS, "db, a1"),
        ("disk node:m1 full=yes", CLOCKS, None),
        ("power-cut node:db", CLOCKS, "db"),
        ("power-cut node:db", ENV_NODES_ONLY, None),
    ],
)
def test_faults_that_cannot_reach_a_foreign_program_are_refused(words, reach, refused):
    environment = SimpleNamespace(
        name="e",
        owns_programs=False,
        reaches_foreign=dict.fromkeys(reach),
        why_no_faulty_disks=lambda: None,
    )
    if refused is None:
        refuse_nodes(load_nemesis(words), NODES, Anything(), environment)
    else:
        with pytest.raises(UsageError, match=f"cannot reach {refused}: a foreign program"):
            refuse_nodes(load_nemesis(words), NODES, Anything(), environment)


def test_the_list_tells_foreign_programs_apart(capsys):
    assert main(["list", "faults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = next(line for line in lines if "docker, foreign" in line)
    cells = {line[2:42].strip(): line[43:] for line in lines if line.startswith("  ")}

    def cell(fault, column):
        at = heads.index(column) - 43
        return cells[fault][at : at + 12].strip()

    for column in ("docker, foreign", "process, foreign"):
        assert cell("clock leader offset=-5s", column) == "exact"
        assert cell("clock leader drift=-500ppm", column) == "approximate"
        assert cell("disk leader full=yes", column) == "faulty disk"
        assert cell("kill leader", column) == "exact"
    assert main(["list", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["environments"]}
    assert found["docker"]["capabilities_foreign"]["clock-skew"] == "exact"
    assert found["docker"]["capabilities_foreign"]["torn-write"] == "exact"
    assert "capabilities_foreign" not in found["sim"]
