"""The gallery: systems of `examples/` for 20 s, each as its file stands and with one line changed.

A row of `SOUND` has to be valid. A row of `CONVICTED` changes one line of the file, and is run with
other seeds until a checker convicts it: a short fault may leave no wrong answer behind.
"""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
LINES_MAX = 30
SEEDS = range(1, 5)
LEADER_CUT = ("--nemesis", "partition-leader", "--time-limit", "8", "--interval", "8")
"""One cut that outlasts the load, while pinned clients keep asking the leader that was replaced."""
POWER_CUT = ("--fault", "power-cut all at 7s for 1s", "--time-limit", "9")


def process(*needs):
    return [getattr(pytest.mark, need) for need in ("process", *needs)] + [
        pytest.mark.slow,
        pytest.mark.xdist_group("process"),
    ]


SOUND = [
    pytest.param(
        "etcd/etcd.toml", ("--nemesis", "partition,kill,pause"), marks=process("etcd"), id="etcd"
    ),
    pytest.param(
        "etcd/etcd.toml",
        ("--fault", "power-cut all every 6s for 1s"),
        marks=[*process("etcd", "fuse"), pytest.mark.nightly],
        id="etcd, power cuts",
    ),
    pytest.param(
        "asyncio_service/service.toml",
        ("--nemesis", "partition,kill,pause"),
        marks=process(),
        id="asyncio service",
    ),
]
CONVICTED = [
    pytest.param(
        "etcd/etcd.toml",
        ("# serializable = true", "serializable = true"),
        LEADER_CUT,
        SEEDS,
        marks=process("etcd"),
        id="etcd, serializable reads",
    ),
    pytest.param(  # a third of the runs: the others wrote back just before the cut
        "etcd/etcd.toml",
        ("etcd --name", "etcd --unsafe-no-fsync --name"),
        POWER_CUT,
        (31, 54, 68) * 4,
        marks=[*process("etcd", "fuse"), pytest.mark.nightly],
        id="etcd, no fsync",
    ),
]


def judged(capsys, system, store, *words):
    """Run a system as processes; return the exit code and the verdict of each checker."""
    code = main(
        [
            *("run", "--json", "--quiet", "--reporters", "none", "--env", "process"),
            *("--system", str(system), "--store", str(store), *words),
        ]
    )
    said = capsys.readouterr()
    assert said.out, said.err
    return code, {each["checker"]: each["verdict"] for each in json.loads(said.out)["checkers"]}


@pytest.mark.parametrize(("file", "faults"), SOUND)
def test_it_keeps_its_promise(capsys, tmp_path, file, faults):
    code, verdicts = judged(
        capsys, EXAMPLES / file, tmp_path, "--time-limit", "20", "--seed", "3", *faults
    )

    assert code in {EXIT_VALID, EXIT_UNKNOWN}, verdicts
    assert verdicts.pop("stats") in {"valid", "unknown"}  # a fault may miss on a busy machine
    assert set(verdicts.values()) == {"valid"}, verdicts


@pytest.mark.parametrize(("file", "line", "faults", "seeds"), CONVICTED)
def test_one_changed_line_convicts_it(capsys, tmp_path, file, line, faults, seeds):
    text = (EXAMPLES / file).read_text()
    assert text.count(line[0]) == 1
    changed = tmp_path / "changed.toml"
    changed.write_text(text.replace(*line))
    for seed in seeds:
        more = ("--concurrency", "9", "--op-timeout", "1", "--seed", str(seed))
        code, verdicts = judged(capsys, changed, tmp_path, *faults, *more)
        if code == EXIT_INVALID:
            break

    convicted = {name for name, verdict in verdicts.items() if verdict == "invalid"}
    assert (code, convicted) == (EXIT_INVALID, {"linearizable-register"}), verdicts


@pytest.mark.parametrize("file", sorted({row.values[0] for row in [*SOUND, *CONVICTED]}))
def test_a_system_is_a_short_file(file):
    assert len((EXAMPLES / file).read_text().splitlines()) <= LINES_MAX
