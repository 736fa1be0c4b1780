"""The database behind the metastores: one protocol, and a small bundled store that speaks it.

A metastore only sees `protocol`; `schema` declares the tables. The store is `engine` (transactions,
locks, snapshots) over `store` (rows, indexes, recent commits) and `journal` (the write-ahead log),
served by `node` and reached through `remote`.
"""
