"""Defects to plant in the bundled target, one per run. Default soaks must find them.

`UNFOUND` lists the exceptions. Each defect is a monkeypatch, which is applied only in the
simulation. Real systems have had defects of these kinds, and none was made for a certain checker.
`harness exam --defects tests.mutants` measures how many are found, and at what cost.
"""

import functools

from harness.plugins import PlantedDefect
from tests.mutants import master_defects, raft_defects, tserver_defects
from tests.mutants.plant import MUTANTS, planted
from tests.mutants.unfound import UNFOUND

REGISTERED = (master_defects, raft_defects, tserver_defects)
DEFECTS = {
    name: PlantedDefect(
        title=mutant.what,
        plant=functools.partial(planted, name),
        options=f"--workload {mutant.workload}" if mutant.workload else "",
        unfound=UNFOUND.get(name, ""),
    )
    for name, mutant in MUTANTS.items()
}
