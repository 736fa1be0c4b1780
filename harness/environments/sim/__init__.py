"""The deterministic simulation: `SimEnvironment`, its knobs, and tools to compare two runs.

| module        | content                                                             |
|---------------|---------------------------------------------------------------------|
| `environment` | the plug-in, which builds a world from a plan and runs the driver   |
| `world`       | the heap of virtual time, the loop over it, limits, digest, logs    |
| `loop`        | the event loop of one incarnation of a node                         |
| `machine`     | machines, the incarnations of their nodes, and the `Env` of each    |
| `network`     | listeners, attempts to connect, and link faults of all links        |
| `connection`  | connections and their frames in flight                              |
| `links`       | one link, its faults, and the latency of frames                     |
| `disk`        | the visible and the durable content of disks, power cuts            |
| `clock`       | clocks with skew and drift; the interface `Scheduler` of the world  |
| `cluster`     | the verbs of a nemesis                                              |
| `knobs`       | the parameters that a swarm of seeds varies                         |
| `tripwires`   | errors for nodes that bypass `Env` for time or randomness           |
| `trace`       | recorded traces and their first difference                          |
"""

from harness.environments.sim.environment import SimEnvironment, SimSession
from harness.environments.sim.knobs import Knobs
from harness.environments.sim.trace import Divergence, first_divergence

__all__ = ["Divergence", "Knobs", "SimEnvironment", "SimSession", "first_divergence"]
