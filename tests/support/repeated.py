"""Repeats a test over many values, such as seeds, that need no test ids of their own."""

import functools
import inspect


def for_each(name, values):
    """Run the test with every value, as the argument `name`; a failure names the value.

    All values share the fixtures of one test; use `parametrize` for a fixture per value.
    """
    values = list(values)
    if not values:
        raise ValueError(f"{name} has no values: the test would pass without checking anything")

    def decorate(test):
        @functools.wraps(test)
        def repeated(**fixtures):
            for value in values:
                try:
                    test(**fixtures, **{name: value})
                except BaseException as error:
                    error.add_note(f"{name}={value!r}")
                    raise

        signature = inspect.signature(test)
        left = [each for each in signature.parameters.values() if each.name != name]
        repeated.__signature__ = signature.replace(parameters=left)
        return repeated

    return decorate
