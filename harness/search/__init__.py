"""Searching for failures: chooses the case that a soak runs for each seed.

| module    | content                                                            |
|-----------|--------------------------------------------------------------------|
| states    | observes the states that a run reaches                             |
| corpus    | keeps the cases that reached new states, in memory and on disk     |
| mutation  | varies a case: its faults, options, knobs and seed                 |
| uniform   | draws cases whose faults are independent and uniformly distributed |
| guide     | draws generations of cases, guided by states reached earlier       |
"""
