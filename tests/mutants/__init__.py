"""Defects planted in the bundled target, one at a time: what default soaks must find.

They are swapped in by monkeypatching, in the simulation only, and shipped nowhere. They are of the
kinds that real systems had; none is tuned to a checker. `harness exam --defects tests.mutants`
measures them.
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
        unfound=UNFOUND.get(name, ""),
    )
    for name, mutant in MUTANTS.items()
}
