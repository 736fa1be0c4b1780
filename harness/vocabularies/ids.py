"""The vocabulary `ids`: a generator of ids.

The answer of `generate` has the field `value`: a number or text that no other answer has.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Generate(Call, frozen=True):
    """Generate an id. The answer has it in `value`."""

    f: ClassVar[str] = "generate"
    mutates: ClassVar[bool] = True


CALLS = Vocabulary[Generate]("ids", (Generate,))
