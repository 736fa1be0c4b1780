"""ZooKeeper for a store of tokens: one protocol, a small bundled server, the real ensemble.

`protocol` is all that the store sees. A small node of ours (`tree`, `node`) is reached through
`remote`; it is one server, where ZooKeeper is an ensemble.
"""
