"""Delegation tokens: `manager` issues, renews, cancels and verifies them, `store` keeps them.

There are three stores, as in Hive: `memory`, `database` and `zookeeper`. With `memory`, each
metastore knows only its own tokens, and forgets them when it ends.
"""
