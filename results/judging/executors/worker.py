"""A worker of the pool: `python -m results.judging.executors.worker CONFIG`.

A process of its own, started afresh: nothing is inherited from the report, neither threads nor
signal handlers nor memory. It ends when its input does. Whatever checkers print goes to stderr.
"""

from __future__ import annotations

import os
import sys

import msgspec

from results.judging.lake_work import do_units
from results.judging.work import LakeConfig, LakeUnit

__all__: list[str] = []


def main(config: LakeConfig) -> None:
    """Do units until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    units = map(msgspec.json.Decoder(LakeUnit).decode, sys.stdin.buffer)
    for done in do_units(units, config=config):
        answers.write(msgspec.json.encode(done) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=LakeConfig))
