"""The gallery: each system in `examples/` runs for 20 s, once unchanged and once with one line
changed.

Rows of `SOUND` must be valid. A row of `CONVICTED` changes one line of the file, unless the
unchanged file already breaks its promise. A short fault may have no visible effect, so such a row
runs with other seeds until a checker convicts it.
"""

import json
import shutil

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
LINES_MAX = 30
SEEDS = range(1, 5)
LEADER_CUT = ("--nemesis", "partition-leader", "--time-limit", "8", "--interval", "8")
"""One cut that outlasts the load, while pinned clients keep asking the leader that was replaced."""
FOLLOWER_CUT = (
    *("--nemesis", "partition-pair", "--time-limit", "20"),
    *("--interval", "6", "--duration", "3"),
)
POWER_CUTS = (
    *("--nemesis", "power-cut-all", "--time-limit", "60"),
    *("--interval", "8", "--duration", "2"),
)
STALE = {"linearizable-register"}
LOST = {"linearizable-register", "crash", "liveness"}
"""The checkers that convict members which lost writes. Some members do not even restart."""
OLD_LEADER = ("--fault", "cut leader from others at 2s for 7s", "--time-limit", "10")
"""One cut during which clients keep writing to a leader that is replaced and gives up later."""
CUT_AND_DEAD = (
    *("--fault", "cut node:n1 from node:n2 at 2s for 6s"),
    *("--fault", "kill node:n1 at 7s for 5s", "--time-limit", "12"),
)
"""The primary dies after a cut in which its clients wrote to it and the standby replaced it."""
LOST_ELEMENTS = {"set-full-linearizable"}
SPLIT_BRAIN = {"set-full-linearizable", "liveness"}
"""The checkers that convict two primaries. On a busy machine, the old primary may return early."""


def row(name, *values, needs=(), nightly=False):
    """Build a test case: a file, its changed line (if any), the faults, the convicting checkers."""
    marks = [getattr(pytest.mark, need) for need in ("process", *needs)]
    marks += [pytest.mark.slow, pytest.mark.xdist_group("process")]
    return pytest.param(*values, marks=[*marks, *[pytest.mark.nightly] * nightly], id=name)


ETCD, ZOOKEEPER = "etcd/etcd.toml", "zookeeper/zookeeper.toml"
SERVICE, POSTGRES = "asyncio_service/service.toml", "postgres/postgres.toml"
SENTINEL = "redis-sentinel/redis-sentinel.toml"
USUAL = ("--nemesis", "partition,kill,pause")
CUT_POWER = ("--fault", "power-cut all every 6s for 1s")
SOUND = [
    row("etcd", ETCD, USUAL, needs=["etcd"]),
    row("zookeeper", ZOOKEEPER, ("--nemesis", "partition,kill"), needs=["zookeeper"]),
    row("etcd, power cuts", ETCD, CUT_POWER, needs=["etcd", "fuse"], nightly=True),
    row("asyncio service", SERVICE, USUAL),
    row("PostgreSQL", POSTGRES, USUAL, needs=["postgres"]),
]
SERIALIZABLE = ("# serializable = true", "serializable = true")
PLAIN = ("\nsync = true", "\nsync = false")
NO_FSYNC = ("etcd --name", "etcd --unsafe-no-fsync --name")
ASYNCHRONOUS = ("remote_apply without failover", "local with failover")
BY_STANDBY = ('protocol = "postgres"', 'protocol = "postgres"\nprimary = false\npinned = true')
STANDBY_CUT = ("--fault", "cut node:n2 to node:n1 at 3s for 4s", "--time-limit", "8")
IN_SETS = ("--workload", "set")
CONVICTED = [
    row("etcd, serializable reads", ETCD, SERIALIZABLE, LEADER_CUT, STALE, needs=["etcd"]),
    row("zookeeper, plain reads", ZOOKEEPER, PLAIN, FOLLOWER_CUT, STALE, needs=["zookeeper"]),
    row("etcd, no fsync", ETCD, NO_FSYNC, POWER_CUTS, LOST, needs=["etcd", "fuse"], nightly=True),
    row(
        *("Redis with Sentinel", SENTINEL, None, (*OLD_LEADER, *IN_SETS), LOST_ELEMENTS),
        needs=["redis"],
    ),
    row(
        *("PostgreSQL, failover to an asynchronous standby", POSTGRES, ASYNCHRONOUS),
        *((*CUT_AND_DEAD, *IN_SETS), SPLIT_BRAIN),
        needs=["postgres"],
    ),
    row(
        *("PostgreSQL, reads from a standby", POSTGRES, BY_STANDBY, STANDBY_CUT, STALE),
        needs=["postgres"],
        nightly=True,
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
    output = capsys.readouterr()
    assert output.out, output.err
    return code, {each["checker"]: each["verdict"] for each in json.loads(output.out)["checkers"]}


@pytest.mark.parametrize(("file", "faults"), SOUND)
def test_it_keeps_its_promise(capsys, tmp_path, file, faults):
    code, verdicts = judged(
        capsys, EXAMPLES / file, tmp_path, "--time-limit", "20", "--seed", "3", *faults
    )

    assert code in {EXIT_VALID, EXIT_UNKNOWN}, verdicts
    for proof in ("stats", "liveness"):  # on a busy machine, a run may prove nothing
        assert verdicts.pop(proof) in {"valid", "unknown"}
    assert set(verdicts.values()) == {"valid"}, verdicts


@pytest.mark.parametrize(("file", "line", "faults", "judges"), CONVICTED)
def test_one_changed_line_convicts_it(capsys, tmp_path, file, line, faults, judges):
    text = (EXAMPLES / file).read_text()
    changed = EXAMPLES / file
    if line is not None:
        assert text.count(line[0]) == 1
        shutil.copytree(changed.parent, tmp_path / "changed")
        changed = tmp_path / "changed" / changed.name
        changed.write_text(text.replace(*line))
    for seed in SEEDS:
        more = ("--concurrency", "9", "--op-timeout", "1", "--seed", str(seed))
        code, verdicts = judged(capsys, changed, tmp_path, *faults, *more)
        if code == EXIT_INVALID:
            break

    convicted = {name for name, verdict in verdicts.items() if verdict == "invalid"}
    assert code == EXIT_INVALID, verdicts
    assert convicted <= judges, verdicts


@pytest.mark.parametrize("file", sorted({row.values[0] for row in [*SOUND, *CONVICTED]}))
def test_a_system_is_a_short_file(file):
    assert len((EXAMPLES / file).read_text().splitlines()) <= LINES_MAX
