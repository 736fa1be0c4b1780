"""Maintenance of a lake: merges small files, removes unneeded files, checks soundness."""

from typing import Final

GRACE_HOURS: Final = 24
"""The default minimum age of files that `vacuum` removes: readers of old versions may need them."""
