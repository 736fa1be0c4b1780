"""The arguments of `harness heal`: a cluster, a fault, or both."""

import pytest

from harness.cli.up.heal_verb import _names_and_ids


@pytest.mark.parametrize(
    ("words", "names", "ids"),
    [
        ([], [], []),
        (["dev"], ["dev"], []),
        (["f1"], [], ["f1"]),
        (["dev", "f1"], ["dev"], ["f1"]),
        (["f1", "dev"], ["dev"], ["f1"]),
        # an id of a fault in a run's plan
        (
            ["frozen", "partition-leader-1"],
            ["frozen"],
            ["partition-leader-1"],
        ),
        (["f1", "f2"], [], ["f1", "f2"]),  # refused later: only one fault may be named
    ],
)
def test_the_second_of_two_words_is_a_fault(words, names, ids):
    assert _names_and_ids(words) == (names, ids)
