"""Defects planted in the bundled target, one at a time, which default soaks must find.

Each defect is a monkeypatch that is only applied in the simulation and belongs to no package. Real
systems have had defects of these kinds; none is tuned to a checker. `harness exam --defects
tests.mutants` measures how they are found.
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
