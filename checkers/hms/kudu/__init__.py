"""The checker of Kudu's catalog against the metastore's (invariant I10)."""

from checkers.hms.kudu.checker import KuduHmsChecker

__all__ = ["KuduHmsChecker"]
