"""Models of histories that others recorded: each reads ops in its vocabulary and judges them.

`harness check --model` takes etcd-cas-register, cas-register, register, multi-register, mutex, set,
queue, unordered-queue, kv-string and catalog; `--elle` takes list-append, rw-register and
closed-predicate. They are checkers (`harness.plugins.HistoryModel`), so that the command knows none
of them by name; a package of yours can add more.
"""
