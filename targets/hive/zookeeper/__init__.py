"""ZooKeeper for a store of tokens: one protocol, a small bundled server, the real ensemble.

The store only sees `protocol`. The small bundled server is `tree` and `node`, and `remote` connects
to it. It is a single server, whereas the real ZooKeeper (`ensemble`, `kazoo`) has several.
"""
