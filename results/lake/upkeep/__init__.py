"""Maintenance of a lake: merge small files, remove dead ones, check soundness."""

from typing import Final

GRACE_HOURS: Final = 24
"""The default minimum age of files that `vacuum` removes: readers of old versions may need them."""
