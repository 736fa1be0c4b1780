"""Every defect in the list can still be planted; a nightly run checks that tests notice it."""

import ast

import pytest

from tests.mutation.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_it_applies(mutation):
    text = (ROOT / mutation.file).read_text()
    changed = mutation.applied(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    for test in mutation.tests:
        assert (ROOT / test).exists(), test


def test_names_are_unique_and_none_is_lost():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 34
