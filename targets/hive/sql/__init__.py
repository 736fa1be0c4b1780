"""The database behind the metastores: one protocol, and a small store of ours that speaks it.

`protocol` is all that a metastore sees; `schema` says which tables there are. The store is
`engine` (transactions, locks, snapshots) over `store` (rows, indexes, what was committed lately)
and `journal` (the write-ahead log), served by `node` and reached through `remote`.
"""
