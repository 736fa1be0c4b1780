"""Maintenance of a lake: merges small files, removes unneeded files, checks soundness."""

from typing import Final

GRACE_HOURS: Final = 24
"""The default minimum age of files that `vacuum` removes. Readers of old versions need young files.
"""
