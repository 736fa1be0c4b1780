"""A register on three nodes without a leader, and the plug-ins with which the harness tests it.

| module    | purpose                                                |
|-----------|--------------------------------------------------------|
| `node`    | one replica: remembers the newest value it received    |
| `client`  | reads and writes by majorities                         |
| `target`  | a harness target: deployment and inspection            |
| `nemesis` | faults that the built-in nemeses do not offer          |

The algorithm is that of Attiya, Bar-Noy and Dolev (JACM 42(1), 1995), with many writers.
"""
