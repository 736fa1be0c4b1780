"""The checker of Kudu's catalog against the metastore's (invariant I10)."""

from checkers.kudu_hms.checker import KuduHmsChecker

__all__ = ["KuduHmsChecker"]
