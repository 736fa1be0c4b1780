"""ZooKeeper, as far as a store of tokens needs it: one protocol, and what speaks it.

`protocol` is all that the store sees. A small node of ours (`tree`, `node`) is reached through
`remote`; it is one server, where ZooKeeper is an ensemble.
"""
