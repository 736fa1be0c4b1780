"""The client of the bundled target: finds the leader master, sends, and classifies outcomes."""

from targets.kudu.client._client import KuduClient
from targets.kudu.client._hive import TwoSidedClient
from targets.kudu.client._policy import RetryPolicy

__all__ = ["KuduClient", "RetryPolicy", "TwoSidedClient"]
