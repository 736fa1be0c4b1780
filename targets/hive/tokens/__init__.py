"""Delegation tokens: `manager` issues, renews, cancels and verifies them, `store` keeps them.

There are three stores, as in Hive: `memory`, where each metastore knows its own tokens alone and
forgets them when it ends, `database`, and `zookeeper`.
"""
