"""A client of the metastores, with the algorithm of Hive's own client."""

from __future__ import annotations

from targets.hive.client.client import MetastoreClient
from targets.hive.client.settings import ClientSettings, Selection, UriList

__all__ = ["ClientSettings", "MetastoreClient", "Selection", "UriList"]
