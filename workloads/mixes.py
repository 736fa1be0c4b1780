"""Weights of the kinds of operations, in the format of `--mix`."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.errors import UsageError, choices_near

Mix = tuple[tuple[str, int], ...]


def draw_kind(mix: Mix, rng: random.Random) -> str:
    """A random kind of operation, drawn by weight."""
    return rng.choices([kind for kind, _ in mix], [weight for _, weight in mix])[0]


def parse_mix(text: str, kinds: Sequence[str]) -> Mix:
    """Parse weights such as `create=26,alter=18,...` by kind of operation. Raises `UsageError`."""
    weights: dict[str, int] = {}
    for part in text.split(","):
        kind, separator, weight = part.strip().partition("=")
        if separator and kind not in kinds:
            raise UsageError(
                f"--mix has {part.strip()!r}: no kind of operation {kind!r}; "
                f"{choices_near(kind, kinds)}"
            )
        if not separator or not weight.isdecimal():
            raise UsageError(f"--mix has {part.strip()!r}; write KIND=WEIGHT, e.g. {kinds[0]}=5")
        weights[kind] = int(weight)
    if sum(weights.values()) == 0:
        raise UsageError(f"--mix {text!r} gives every kind the weight 0; raise one of them")
    return tuple((kind, weights[kind]) for kind in kinds if weights.get(kind))
