"""Pure, composable generators of operations, after Jepsen's algebra.

Write plain values and wrap them: `time_limit(60, stagger(1 / 30, mix(reads, writes)))`. The
protocol is in `core`; `harness.run.interpreter` runs a generator against real clients. For anything
else, write a class with `op` and `update`, as in `workloads/`. Nemeses are not generators:
`harness.faults` plans them. Jepsen's names correspond to these:

| Jepsen                     | here                                           | module      |
|----------------------------|------------------------------------------------|-------------|
| map, seq, fn, nil, concat  | Draft or Request, list, function, None; concat | plain       |
| cycle                      | a function that returns a list                 | plain       |
| limit, once, repeat        | limit, repeat                                  | plain       |
| any                        | any_of                                         | choice      |
| mix                        | mix, weighted                                  | choice      |
| time-limit, stagger, delay | time_limit, stagger, delay                     | timing      |
| sleep, (none)              | sleep, timed_ops                               | timing      |
| each-thread, reserve       | each_thread, reserve                           | threads     |
| synchronize, phases, then  | synchronize, phases                            | threads     |
| validate                   | validate                                       | diagnosis   |
"""

from harness.generator.choice import any_of, mix, weighted
from harness.generator.core import (
    SLEEP,
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    Pending,
    Step,
    complete,
    due_ns,
    new_context,
)
from harness.generator.diagnosis import validate
from harness.generator.plain import NOTHING, concat, lift, limit, repeat
from harness.generator.threads import each_thread, phases, reserve, synchronize
from harness.generator.timing import delay, sleep, stagger, time_limit, timed_ops

__all__ = [
    "NOTHING",
    "SLEEP",
    "Context",
    "Draft",
    "Emit",
    "Generator",
    "GeneratorLike",
    "Pending",
    "Step",
    "any_of",
    "complete",
    "concat",
    "delay",
    "due_ns",
    "each_thread",
    "lift",
    "limit",
    "mix",
    "new_context",
    "phases",
    "repeat",
    "reserve",
    "sleep",
    "stagger",
    "synchronize",
    "time_limit",
    "timed_ops",
    "validate",
    "weighted",
]
