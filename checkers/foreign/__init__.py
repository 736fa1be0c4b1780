"""Models of histories that others recorded: each reads ops in its vocabulary and judges them.

Imported histories were recorded by other tools. `harness check --model` takes etcd-cas-register,
cas-register, register, multi-register, mutex, set, queue, unordered-queue, kv-string and catalog;
`--elle` takes list-append, rw-register and closed-predicate. The models are plug-ins
(`harness.plugins.HistoryModel`), which the command finds by name; your own packages can add models.
"""
