"""Support for coroutines as tests: each runs in an event loop of its own, chosen by its `loop`
mark.

Without the mark, a test runs in `asyncio.run`. A module whose tests run in virtual time sets
`pytestmark = pytest.mark.loop(run=run)`, where `run` takes a coroutine and returns when it ends.
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
    """Decorate a test whose body runs inside `drive(body, *args, **options)`.

    `drive` passes the first argument of the body; all other arguments are fixtures and parameters.
    """

    def decorate(body):
        arguments = list(inspect.signature(body).parameters.values())

        @functools.wraps(body)
        def test(**fixtures):
            drive(functools.partial(body, **fixtures), *args, **options)

        test.__signature__ = inspect.Signature(arguments[1:])
        return test

    return decorate
