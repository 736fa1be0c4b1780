"""Choosing an environment: `--env auto` takes Docker where it works, else local processes."""

from __future__ import annotations

import sys

from harness.errors import UsageError
from harness.plugins import Environment, load_plugin, plugin_names

__all__ = ["AUTO", "choose_environment"]

AUTO = "auto"


def choose_environment(name: str, *, quiet: bool = False) -> Environment:
    """The environment called `name`, usable here and now.

    For `auto` says on stderr which it took and why. Raises `UsageError` with the fix when the one
    that was asked for cannot be used.
    """
    if name != AUTO:
        if name not in plugin_names("environments"):
            known = ", ".join([AUTO, *plugin_names("environments")])
            raise UsageError(f"--env is {name!r}; it is one of: {known}")
        environment: Environment = load_plugin("environments", name)
        reason = environment.unavailable()
        if reason is not None:
            raise UsageError(f"--env {name} cannot be used here: {reason}")
        return environment
    docker: Environment = load_plugin("environments", "docker")
    reason = docker.unavailable()
    if reason is None:
        _say("environment docker (an engine answers and the node image is there)", quiet)
        return docker
    _say(f"environment process, not docker: {reason}", quiet)
    process: Environment = load_plugin("environments", "process")
    missing = process.unavailable()
    if missing is not None:
        raise UsageError(f"neither docker ({reason}) nor process ({missing}) can be used here")
    return process


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr)
