"""ZooKeeper for token stores: one protocol for a small bundled server and a real ensemble.

The token store only uses `protocol`. `tree` and `node` are the bundled server, and `remote`
connects to it. `ensemble` and `kazoo` are for the real one, which has several servers.
"""
