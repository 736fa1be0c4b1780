"""ZooKeeper for token stores: one protocol for a small bundled server and a real ensemble.

The store only sees `protocol`. The small bundled server is `tree` and `node`, and `remote` connects
to it. It is a single server, whereas the real ZooKeeper (`ensemble`, `kazoo`) has several.
"""
