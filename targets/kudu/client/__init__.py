"""The client of the bundled target: finds the leading master, sends, and classifies outcomes."""

from targets.kudu.client.client import KuduClient
from targets.kudu.client.hive import TwoSidedClient
from targets.kudu.client.session import RetryPolicy

__all__ = ["KuduClient", "RetryPolicy", "TwoSidedClient"]
