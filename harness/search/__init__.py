"""Searching for failures: chooses the case that a soak runs for each seed.

| module    | content                                                            |
|-----------|--------------------------------------------------------------------|
| states    | the states that a run reached, as digests                          |
| corpus    | cases that reached new states, in memory and on disk               |
| mutation  | variations of a case: its faults, options, knobs and seed          |
| uniform   | cases in which everything is drawn at once                         |
| guide     | generations of cases, each drawn from what earlier ones reached    |
"""
