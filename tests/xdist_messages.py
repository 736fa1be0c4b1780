"""Workers of pytest-xdist send what the controller has a use for.

xdist tells six things of each test: that it begins, one report each of set-up, test and tear-down,
that it ended, and that another may follow. All are taken apart, sent and put together again in pure
Python, which for most of our thousands of tests takes longer than the test. That a test begins and
ends only `-v` shows, and a report of a set-up or tear-down that passed and carries nothing is only
asked for by `--durations` and JUnit files.

A worker has a reporter for the terminal, too, whose output nobody sees.
"""

import pytest


class Unheard:
    """A reporter that is there for whoever asks for it, and reports nothing."""

    def __init__(self, reporter):
        self._reporter = reporter

    def __getattr__(self, name):
        return getattr(self._reporter, name)


@pytest.hookimpl(trylast=True)  # after the reporter is there
def pytest_configure(config):
    """In workers, see to it that little is told, unless somebody wants to know all."""
    if not hasattr(config, "workerinput"):
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.unregister(reporter)
        config.pluginmanager.register(Unheard(reporter), "terminalreporter")
    option = config.option
    if option.verbose > 0 or option.durations is not None or option.xmlpath is not None:
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # of a module that is sent as its source
            plugin.sendevent = only_news(plugin.sendevent)


def only_news(send):
    """`send`, but for what says nothing."""

    def sendevent(name, **told):
        if name in {"logstart", "logfinish"}:
            return
        if name == "testreport" and says_nothing(told["data"]):
            return
        send(name, **told)

    return sendevent


def says_nothing(report):
    """Whether it is a report of a set-up or tear-down that passed and of no output or property."""
    return (
        report["when"] != "call"
        and report["outcome"] == "passed"
        and not report["sections"]
        and not report["user_properties"]
    )
