"""Delegation tokens: `manager` issues, renews, cancels and verifies them, `store` keeps them.

There are three stores, as in Hive: `memory`, `database` and `zookeeper`. With `memory`, each
metastore has only the tokens that it issued, and loses them when it ends.
"""
