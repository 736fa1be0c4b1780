"""One run, phase by phase.

| what                                   | module          |
|----------------------------------------|-----------------|
| the phases in order, and their bounds  | `phases`        |
| the deployed target, with its looks    | `live_target`   |
| client operations from the generator   | `interpreter`   |
| planned faults, at their moments       | `conductor`     |
| operations of administrators           | `operations`    |
| index, time and log of every op        | `recorder`      |
| the probe after healing, final reads   | `probe`         |
| replicas compared along the run        | `divergence`    |
| pauses of the harness itself           | `heartbeat`     |
| the run's folder, verdict and results  | `keep`          |
"""
