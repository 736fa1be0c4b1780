"""Weights of kinds of operations, as `--mix` gives them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.errors import UsageError

__all__ = ["Mix", "draw_kind", "parse_mix"]

Mix = tuple[tuple[str, int], ...]


def draw_kind(mix: Mix, rng: random.Random) -> str:
    """A kind of operation, by its weight."""
    return rng.choices([kind for kind, _ in mix], [weight for _, weight in mix])[0]


def parse_mix(text: str, kinds: Sequence[str]) -> Mix:
    """Weights by kind of operation from `create=26,alter=18,...`; raises `UsageError`."""
    weights: dict[str, int] = {}
    for part in text.split(","):
        kind, separator, weight = part.strip().partition("=")
        if kind not in kinds or not separator or not weight.isdecimal():
            raise UsageError(
                f"{part!r} in --mix is not KIND=WEIGHT with a whole WEIGHT and a KIND of: "
                f"{', '.join(kinds)}"
            )
        weights[kind] = int(weight)
    if sum(weights.values()) == 0:
        raise UsageError(f"--mix {text!r} gives every kind the weight 0; raise one of them")
    return tuple((kind, weights[kind]) for kind in kinds if weights.get(kind))
