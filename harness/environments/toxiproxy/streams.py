"""What makes a stream bad, as toxics."""

from __future__ import annotations

import math

from harness.cluster import StreamQuality

__all__ = ["toxics_of"]


def toxics_of(quality: StreamQuality) -> list[tuple[str, dict[str, int]]]:
    """Type and attributes of each toxic, in the order in which bytes come to them."""
    toxics: list[tuple[str, dict[str, int]]] = []
    if quality.slice_bytes:
        gap_us = math.ceil(quality.gap_ms * 1000)
        size = {"average_size": quality.slice_bytes, "size_variation": 0}
        toxics.append(("slicer", size | {"delay": gap_us}))
    if quality.reset_after_ms is not None:
        toxics.append(("reset_peer", {"timeout": math.ceil(quality.reset_after_ms)}))
    return toxics
