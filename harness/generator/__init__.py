"""What to do next: pure, composable generators of operations, after Jepsen's algebra.

Write plain values and wrap them: `time_limit(60, stagger(1 / 30, clients(mix(reads, writes))))`.
The protocol is in `core`; `harness.interpreter` runs a generator against real clients, `simulate`
against made-up completions. Names, and where Jepsen's differ:

| Jepsen                            | here                                | module      |
|-----------------------------------|-------------------------------------|-------------|
| map, seq, fn, nil as generators   | Draft/Request, list, function, None | plain       |
| delay, promise as generators      | lazily, deferred                    | combinators |
| concat                            | concat                              | plain       |
| map, f-map, filter                | map_ops, f_map, filter_ops          | combinators |
| on-update                         | on_update                           | combinators |
| limit, once, repeat, cycle        | limit, once, repeat, cycle          | combinators |
| until-ok                          | until_ok                            | combinators |
| (early termination)               | until_event, `stop` of interpret    | combinators |
| any, shortest-any                 | any_of, shortest_any                | choice      |
| mix                               | mix, weighted                       | choice      |
| flip-flop                         | flip_flop                           | choice      |
| time-limit, stagger, delay, sleep | time_limit, stagger, delay, sleep   | timing      |
| cycle-times, cache                | cycle_times, cache                  | timing      |
| (none)                            | timed_ops                           | timing      |
| on-threads (on), clients, nemesis | on_threads, clients, nemesis, split | threads     |
| (role restriction)                | on_role                             | threads     |
| each-thread, each-process         | each_thread, each_process           | threads     |
| reserve                           | reserve                             | threads     |
| process-limit, concurrency-limit  | process_limit, concurrency_limit    | threads     |
| synchronize, phases, then         | synchronize, phases, then           | threads     |
| independent/sequential-generator  | sequential_keys                     | independent |
| independent/concurrent-generator  | concurrent_keys                     | independent |
| validate, friendly-exceptions     | validate, friendly_exceptions       | diagnosis   |
| trace, log                        | trace, log                          | diagnosis   |
| test/quick, perfect, ...          | quick, perfect, perfect_info, ...   | simulate    |
"""

from harness.generator.choice import any_of, flip_flop, mix, shortest_any, weighted
from harness.generator.combinators import (
    cycle,
    deferred,
    f_map,
    filter_ops,
    lazily,
    limit,
    map_ops,
    on_update,
    once,
    repeat,
    until_event,
    until_ok,
)
from harness.generator.core import (
    LOG,
    SLEEP,
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    Pending,
    Step,
    Thread,
    complete,
    due_ns,
    new_context,
)
from harness.generator.diagnosis import friendly_exceptions, log, trace, validate
from harness.generator.independent import concurrent_keys, sequential_keys
from harness.generator.plain import NOTHING, concat, lift
from harness.generator.threads import (
    clients,
    concurrency_limit,
    each_process,
    each_thread,
    nemesis,
    on_role,
    on_threads,
    phases,
    process_limit,
    reserve,
    split,
    synchronize,
    then,
)
from harness.generator.timing import (
    cache,
    cycle_times,
    delay,
    sleep,
    stagger,
    time_limit,
    timed_ops,
)

__all__ = [
    "LOG",
    "NOTHING",
    "SLEEP",
    "Context",
    "Draft",
    "Emit",
    "Generator",
    "GeneratorLike",
    "Pending",
    "Step",
    "Thread",
    "any_of",
    "cache",
    "clients",
    "complete",
    "concat",
    "concurrency_limit",
    "concurrent_keys",
    "cycle",
    "cycle_times",
    "deferred",
    "delay",
    "due_ns",
    "each_process",
    "each_thread",
    "f_map",
    "filter_ops",
    "flip_flop",
    "friendly_exceptions",
    "lazily",
    "lift",
    "limit",
    "log",
    "map_ops",
    "mix",
    "nemesis",
    "new_context",
    "on_role",
    "on_threads",
    "on_update",
    "once",
    "phases",
    "process_limit",
    "repeat",
    "reserve",
    "sequential_keys",
    "shortest_any",
    "sleep",
    "split",
    "stagger",
    "synchronize",
    "then",
    "time_limit",
    "timed_ops",
    "trace",
    "until_event",
    "until_ok",
    "validate",
    "weighted",
]
