"""The checker of invariant I10: Kudu's catalog and the metastore agree."""

from checkers.hms.kudu.checker import KuduHmsChecker

__all__ = ["KuduHmsChecker"]
