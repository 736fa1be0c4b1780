"""Runs tests that are coroutines, each in its own event loop.

By default, `asyncio.run` runs a test. The mark `loop(run=...)` names another function that runs the
coroutine, for example in virtual time: `pytestmark = pytest.mark.loop(run=run)`.
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
    """Decorate a test so that `drive(body, *args, **options)` runs its body.

    `drive` passes the body's first argument. The other arguments are fixtures and parameters.
    """

    def decorate(body):
        arguments = list(inspect.signature(body).parameters.values())

        @functools.wraps(body)
        def test(**fixtures):
            drive(functools.partial(body, **fixtures), *args, **options)

        test.__signature__ = inspect.Signature(arguments[1:])
        return test

    return decorate
