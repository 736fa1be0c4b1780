"""The kernel's limits are checked before a run starts, and raised or reported."""

import os
import resource
import subprocess
import sys

import pytest

from harness.cluster import NodeSpec
from harness.environments.host import limits
from harness.errors import UsageError
from harness.plugins import DeploymentPlan


def plan(nodes=3, clients=10, **more):
    specs = tuple(
        NodeSpec(name=f"n{n}", role="r", ports=(1,), command=("x",)) for n in range(nodes)
    )
    return DeploymentPlan(
        run_id="x", nodes=specs, seed=1, knobs={}, folder=None, clients=clients, **more
    )


class Kernel:
    """A fake kernel whose limits the test chooses."""

    RLIM_INFINITY = resource.RLIM_INFINITY
    RLIMIT_NOFILE = resource.RLIMIT_NOFILE
    RLIMIT_NPROC = resource.RLIMIT_NPROC

    def __init__(self, **limits):
        self.limits = {resource.RLIMIT_NOFILE: (-1, -1), resource.RLIMIT_NPROC: (-1, -1)}
        self.limits |= {getattr(resource, name): pair for name, pair in limits.items()}

    def getrlimit(self, kind):
        return self.limits[kind]

    def setrlimit(self, kind, pair):
        self.limits[kind] = pair


NEEDED = limits.descriptors_needed(3, 10)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((NEEDED, NEEDED), (NEEDED, NEEDED)),
        ((64, NEEDED), (NEEDED, NEEDED)),
        ((64, -1), (NEEDED, -1)),
        ((-1, -1), (-1, -1)),
        ((10**6, 10**6), (10**6, 10**6)),
    ],
)
def test_soft_limits_are_raised_as_far_as_needed(monkeypatch, before, after):
    kernel = Kernel(RLIMIT_NOFILE=before)
    monkeypatch.setattr(limits, "resource", kernel)
    limits.require_limits(plan())
    assert kernel.limits[resource.RLIMIT_NOFILE] == after


@pytest.mark.parametrize("kind", ["RLIMIT_NOFILE", "RLIMIT_NPROC"])
def test_a_hard_limit_that_is_too_low_is_refused(monkeypatch, kind):
    monkeypatch.setattr(limits, "resource", Kernel(**{kind: (1, 8)}))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="8"):
        limits.require_limits(plan())


def test_the_limit_on_processes_is_none_for_root(monkeypatch):
    monkeypatch.setattr(limits, "resource", Kernel(RLIMIT_NPROC=(1, 8)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    limits.require_limits(plan())


def test_more_nodes_and_clients_need_more():
    assert limits.descriptors_needed(6, 200) > limits.descriptors_needed(6, 10) > 200
    assert limits.descriptors_needed(6, 10, 11) == limits.descriptors_needed(6, 10) + 60


def test_too_many_separate_clients_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "resource", Kernel())
    ends = tuple(map(str, range(limits.CLIENT_ENDS_MAX + 2)))
    limits.require_limits(plan(ends=ends[:-1]))
    with pytest.raises(UsageError, match=str(limits.CLIENT_ENDS_MAX + 1)):
        limits.require_limits(plan(ends=ends))


def test_a_run_without_descriptors_ends_at_once_with_the_fix(tmp_path):
    command = "from harness.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
    arguments = ["run", "--env", "process", "--time-limit", "5", "--store", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.returncode == 254
    assert "64" in done.stderr
