"""A register that is kept on three nodes without a leader, and what the harness needs to test it.

| module    | purpose                                                |
|-----------|--------------------------------------------------------|
| `node`    | one replica: remembers the newest value it received    |
| `client`  | reads and writes by majorities                         |
| `target`  | how to deploy it and look into it: a harness target    |
| `nemesis` | a way of our own to break it                           |

The algorithm is that of Attiya, Bar-Noy and Dolev (JACM 42(1), 1995), with many writers.
"""
