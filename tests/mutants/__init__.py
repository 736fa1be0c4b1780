"""Defects planted in the bundled target, one at a time, which default soaks must find.

Each defect is a monkeypatch that is applied only in the simulation and is not part of any package.
Real systems had defects of these kinds; none is tuned to a checker. `harness exam --defects
tests.mutants` measures them.
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
