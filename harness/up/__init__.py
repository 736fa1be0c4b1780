"""A cluster that stays: `harness up` starts it, and it lives until `harness down`.

A deployment belongs to a process, and whatever kills that process, its warden undoes all it made.
So a cluster that stays has a process of its own, its *holder* (`holder`), which outlives the
command that started it: it executes an environment as a run does, and instead of driving a workload
it opens a door (`door`) by which other commands ask it to break something (`cluster`), or to end.
What is known of a cluster lies in a folder of this user's (`place`).
"""
