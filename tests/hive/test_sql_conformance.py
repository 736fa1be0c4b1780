"""The bundled store conforms to the SQL protocol. Other databases run the same cases."""

import pytest

from tests.hive.conformance import CASES
from tests.hive.databases import with_store


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_store(case):
    async def body(database, session):
        del session
        await case(database)

    with_store(body)
    assert len(CASES) > 20
