"""The database behind the metastores: one protocol, and a small bundled store that implements it.

A metastore only uses `protocol`; `schema` declares the tables. The bundled store consists of
`engine` (transactions, locks, snapshots), `store` (rows, indexes, recent commits) and `journal`
(the write-ahead log). `node` serves it, and `remote` connects to it.
"""
