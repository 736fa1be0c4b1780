"""The deterministic simulation: `SimEnvironment`, its knobs, and tools to compare two runs.

| module        | content                                                             |
|---------------|---------------------------------------------------------------------|
| `environment` | the plug-in: builds a world from a plan, runs the driver in it      |
| `scheduler`   | the part of the world that clocks, loops and disks use              |
| `world`       | the heap of virtual time, the loop over it, guards, digest, logs    |
| `loop`        | the event loop of one incarnation of a node                         |
| `machine`     | what survives a node, the node's lives, and `Env` of each           |
| `network`, `connection`, `links` | who talks to whom, frames on their way, link faults |
| `disk`        | visible and durable content, and what a crash leaves                |
| `clock`       | skew and drift                                                      |
| `cluster`     | the nemesis's verbs                                                 |
| `knobs`       | what a swarm of seeds may vary                                      |
| `tripwires`   | run-time guard against clocks and randomness behind `Env`'s back    |
| `trace`       | digests, recorded traces, the first difference                      |
"""

from harness.environments.sim.environment import SimEnvironment, SimSession
from harness.environments.sim.knobs import Knobs
from harness.environments.sim.trace import Divergence, first_divergence

__all__ = ["Divergence", "Knobs", "SimEnvironment", "SimSession", "first_divergence"]
