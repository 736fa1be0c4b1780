"""ZooKeeper for token stores: one protocol for a small bundled server and a real ensemble.

The token store only uses `protocol`. `tree` and `node` are the bundled server, and `remote`
connects to it. The bundled ZooKeeper is a single server; the real one (`ensemble`, `kazoo`) has
several.
"""
