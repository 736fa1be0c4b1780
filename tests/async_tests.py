"""A test that is a coroutine runs on a loop of its own, in the world that its `loop` mark names.

Without the mark that is `asyncio.run`. A module in virtual time says once how its tests are run:
`pytestmark = pytest.mark.loop(run=run)`, where `run` takes a coroutine and ends with it.
"""

import asyncio
import functools
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    mark = pyfuncitem.get_closest_marker("loop")
    run = asyncio.run if mark is None else mark.kwargs["run"]
    run(test(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def on(drive, *args, **options):
    """The test is the body that `drive(body, *args, **options)` runs.

    Its first argument comes from `drive`, the others are fixtures and parameters.
    """

    def decorate(body):
        arguments = list(inspect.signature(body).parameters.values())

        @functools.wraps(body)
        def test(**fixtures):
            drive(functools.partial(body, **fixtures), *args, **options)

        test.__signature__ = inspect.Signature(arguments[1:])
        return test

    return decorate
