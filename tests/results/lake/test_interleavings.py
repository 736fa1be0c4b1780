"""Interleaved writers, compactions, vacuums and readers, which may die or fail at any call.

The oracle knows the acknowledged runs, each of which must exist exactly once and be complete. All
other runs must be complete or absent.
"""

import contextlib
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from results.lake.upkeep.vacuum import vacuum
from tests.results.lake.stage import HARM, Actor, play
from tests.results.lake.toy import contents, damage, lake_at, rows
from tests.tiers import examples

pytestmark = [pytest.mark.lake, pytest.mark.slow]

HARMS_MAX = 4


def writer(*batches):
    """Return a function that appends `batches` to a lake, one after another.

    Its attribute `acknowledged` collects the rows whose append returned.
    """

    def work(lake):
        for batch in batches:
            lake.append(rows(batch))
            acknowledged.extend(batch)

    acknowledged = []
    work.acknowledged = acknowledged
    return work


def reader(lake):
    for _ in range(3):
        # a vacuum without a grace period may remove files of this version
        with contextlib.suppress(FileNotFoundError):
            contents(lake)


def compactor(lake):
    compact(lake)
    compact(lake)


def vacuumer(lake):
    vacuum(lake, grace_hours=0)
    vacuum(lake, grace_hours=0)


# no shrinking of examples, which is slow
@settings(max_examples=examples(12), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 2**32),
    harm=st.sampled_from([0.0, 0.02, 0.1]),
    readers=st.booleans(),
    vacuums=st.booleans(),
)
def test_no_acknowledged_run_is_lost_and_none_is_doubled(seed, harm, readers, vacuums):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "lake"
        before = ["a0", "a1", "a2"]
        for run in before:
            lake_at(root).append(rows([run]))
        writers = [
            writer(["b0", "b1"], ["b2"], ["b3"]),
            writer(["c0"], ["b1", "c1"], ["c2"]),
            writer(["a1", "d0"], ["b3", "d1"]),
        ]
        works = {f"writer {index}": work for index, work in enumerate(writers)}
        works |= {"compactor": compactor, "other compactor": compactor}
        works |= {"reader": reader} if readers else {}
        works |= {"vacuum": vacuumer} if vacuums else {}
        chance = random.Random(seed)
        left = [HARMS_MAX]

        def draw_harm():
            if not left[0] or chance.random() >= harm:
                return None
            left[0] -= 1
            return chance.choice(HARM)

        actors = [Actor(name, lake_at(root), work) for name, work in works.items()]
        for line in play(actors, chance.choice, draw_harm):
            note(line)
        after = lake_at(root)
        acknowledged = {run for work in writers for run in work.acknowledged} | set(before)
        found = contents(after)
        assert acknowledged - found == set()
        assert damage(after) == []
        # after a kill, the writer appends everything again
        everything = ["b0", "b1", "b2", "b3", "c0", "c1", "c2", "a1", "d0", "d1"]
        assert set(after.append(rows(everything))) == found & set(everything)
        compact(after)
        vacuum(after, grace_hours=0)
        vacuum(after, grace_hours=0)
        assert contents(after) == {*everything, *before}
        assert check(after) == []
