"""Neighbours that share folders with a live run, and clean: is anything of the run lost?

    python -m bench.faults.neighbours

A run in processes and a cluster that stays are alive in this PID namespace, and a second run in a
namespace of its own. `harness clean` and `harness down` run in this namespace, in two new ones and,
where an engine answers, in a container that shares `/tmp` and the state folder. Needs root
(`unshare`). Exit code 1 if a run or the cluster lost anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NAMESPACE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
HARNESS: Final = (sys.executable, "-m", "harness")
RUN: Final = ("run", "--env", "process", "--nemesis", "none", "--time-limit", "45", "--rate", "20")
UP: Final = ("up", "--env", "process", "--name", "neighbour")


def container(state: str) -> list[str]:
    """The prefix of a command in a container with this machine's files; [] without one."""
    seen = subprocess.run(
        ["docker", "images", "-q", "harness-node:latest"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if seen.returncode != 0 or not seen.stdout.strip():
        return []
    shared = {tempfile.gettempdir(), state, str(ROOT), str(Path(sys.base_prefix))}
    mounts = [word for folder in sorted(shared) for word in ("-v", f"{folder}:{folder}")]
    image = seen.stdout.split()[0]
    return ["docker", "run", "--rm", "--network", "none", "-u", "0", *mounts, "-w", str(ROOT),
            "-e", "HOME=/tmp", "-e", f"XDG_STATE_HOME={state}", "--entrypoint=", image]  # fmt: skip


def call(prefix: Sequence[str], *words: str) -> tuple[int, str]:
    """Run one command of the harness; its exit code and its output."""
    done = subprocess.run(
        [*prefix, *HARNESS, *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def main() -> int:
    """Start all, clean everywhere, and list the leftovers."""
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        code, output = call((), *UP)
        assert code == 0, output
        runs = {
            where: subprocess.Popen(
                [*prefix, *HARNESS, *RUN, "--seed", seed, "--store", f"{state}/store"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            )
            for where, prefix, seed in (("here", (), "1"), ("in a namespace", NAMESPACE, "2"))
        }  # fmt: skip
        time.sleep(15)  # both are in chaos, or warming up on a slow machine
        neighbours = {
            "here": ["clean"],
            "namespace 1": ["clean", "down"],
            "namespace 2": ["clean", "down"],
            "container": ["clean", "down"],
        }
        starts = {"here": [], "container": container(state)}
        for where, verbs in neighbours.items():
            prefix = starts.get(where, list(NAMESPACE))
            if where == "container" and not prefix:
                print(f"{where:14} no engine answers, or `harness image build` was not run")
                continue
            for verb in verbs:
                code, output = call(prefix, verb)
                print(f"{where:14} {verb:6} {code:3}  {output[:160]}")
        lost = 0
        for where, run in runs.items():
            output, _ = run.communicate()
            lost += run.returncode != 0
            print(f"run {where:20} exit code {run.returncode}, {output.splitlines()[-1][:100]}")
        code, output = call((), "status", "neighbour", "--json")
        alive = code == 0 and '"ready":true' in output
        print(f"cluster that stays       status {code}, {'it serves' if alive else output[:200]}")
        call((), "down", "neighbour")
        return 1 if lost or not alive else 0


if __name__ == "__main__":
    sys.exit(main())
