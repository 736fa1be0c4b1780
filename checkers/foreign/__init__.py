"""The models of `harness check`: each reads ops in its vocabulary and judges them.

`--model` takes etcd-cas-register, cas-register, register, multi-register, mutex, set, queue,
unordered-queue, kv-string and catalog; `--elle` takes list-append, rw-register and
closed-predicate. They are plug-ins of the group `harness.models`, so that the command knows none of
them by itself; a package of yours can add more. `engine` and `transactions` have what they share
with the checkers of runs (`checkers.catalog.linearizable`, `checkers.elle.checkers`).
"""
