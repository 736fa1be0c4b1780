"""One run, phase by phase.

| what                                   | module          |
|----------------------------------------|-----------------|
| the phases in order, and their bounds  | `phases`        |
| the deployed target, its inspections   | `live_target`   |
| client operations from the generator   | `interpreter`   |
| planned faults, injected on time       | `conductor`     |
| operations of administrators           | `operations`    |
| index, time and log of every op        | `recorder`      |
| the probe after healing, final reads   | `probe`         |
| comparisons of replicas during the run | `divergence`    |
| pauses of the harness itself           | `heartbeat`     |
| the run's folder, verdict and results  | `keep`          |
"""
