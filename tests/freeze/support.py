"""A target that breaks its promise in every run, and commands that freeze such runs."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from harness.environments.procfs import ProcessId
from tests.up.support import Up

EXAMPLE = Path(__file__).parents[2] / "docs" / "example" / "abd_register"
RIGHT = 'request["stamp"] > kept["stamp"]'
WRONG = 'request["stamp"] < kept["stamp"]'
RUN = (
    *("run", "--env", "process", "--target", "abd-register", "--workload", "register"),
    *("--seed", "1", "--rate", "20", "--reporters", "none", "--freeze"),
)


class Freezing(Up):
    """Runs of the example target. The target loses writes if it is `broken`."""

    def __init__(self, home, *, broken=True):
        super().__init__("process", home / "state")
        self.code, self.store = home / "code", home / "store"
        shutil.copytree(EXAMPLE, self.code / "abd_register")
        node = self.code / "abd_register" / "node.py"
        if broken:
            node.write_text(node.read_text().replace(RIGHT, WRONG))
        about = self.code / "abd_register-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: abd-register\nVersion: 0\n")
        points = "[harness.targets]\nabd-register = abd_register.target:AbdRegister\n"
        (about / "entry_points.txt").write_text(points)

    def program(self, *words):
        program, variables = super().program(*words)
        return program, {**variables, "PYTHONPATH": str(self.code)}

    def run(self, *words, code):
        """Run, and expect this exit code; return the report, and remove the cluster at the end."""
        with self.started("--json", "--quiet", *words) as run:
            output, errors = run.communicate(timeout=300)
        assert run.returncode == code, errors
        report = json.loads(output)
        if report["frozen"] is not None:
            self.clusters[report["frozen"]["cluster"]] = None
        return report

    def started(self, *words):
        program, variables = self.program(*RUN, "--store", str(self.store), *words)
        return subprocess.Popen(
            program, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def record(self, name="frozen"):
        """Return the record of a frozen cluster, which has the same form as for `harness up`."""
        return json.loads((self.folder(name) / "cluster.json").read_text())

    @property
    def holder(self):
        """Return the process that holds the run's nodes; `None` before it has taken over."""
        try:
            owner = (self.folder("frozen") / "owner").read_text().partition("@")[0]
            order = json.loads((self.folder("frozen") / "order.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return ProcessId.parse(owner) if order else None

    def states(self, name="frozen"):
        status = self.call("status", name, "--json")["status"]
        return {node["name"]: node["state"] for node in status["nodes"]}
