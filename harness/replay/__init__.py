"""Repeats a simulated run, and halts it at a moment, so that it can be inspected and stepped.

| module       | content                                                                    |
|--------------|----------------------------------------------------------------------------|
| `replay`     | one replay, from its case to its end                                       |
| `moments`    | the moments at which a replay stops, in words                              |
| `watch`      | finds these moments in a running world                                     |
| `view`       | the state of a stopped world, as data                                      |
| `gather`     | reads this state from the objects of the simulation                        |
| `nodes`      | reads the state of one node: pages, connections, files, callbacks          |
| `messages`   | reads messages that are in flight, held or unread                          |
| `tasks`      | reads tasks and timers, with the lines of code at which they wait          |
| `objects`    | reads the target's objects that tasks use, field by field                  |
| `text`       | the state as text                                                          |
| `page`       | the state as one HTML file                                                 |
| `prompt`     | the interactive prompt                                                     |
| `debugger`   | opens Python's debugger in the code of a node                              |
"""
