"""Tells `harness doctor` whether reports and soaks can run on Spark on this machine."""

from __future__ import annotations

import importlib.metadata
from typing import Final

from harness.errors import InfrastructureError
from harness.plugins import Diagnosis

ELSE: Final = "`harness report --engine duckdb` does without"


class SparkAndJava(Diagnosis):
    """Looks for PySpark and a usable Java, without starting Spark."""

    api_version = 1
    name = "spark"
    doc = "PySpark and Java, for reports and soaks on a cluster"

    def look(self) -> tuple[bool, str]:
        """Return whether PySpark and Java are usable, and their versions or installation advice."""
        from results.spark.session import check_java

        try:
            version = importlib.metadata.version("pyspark")
        except importlib.metadata.PackageNotFoundError:
            return False, f"no PySpark; pip install 'catalog-harness[spark]' ({ELSE})"
        try:
            return True, f"PySpark {version}, {check_java()}"
        except InfrastructureError as error:
            return False, f"PySpark {version}, but {error} ({ELSE})"
