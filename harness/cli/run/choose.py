"""Chooses the environment: `--env auto` is Docker if it works, and otherwise local processes."""

from __future__ import annotations

from harness.cli.output import note
from harness.errors import InfrastructureError, UsageError, choices_near
from harness.plugins import Environment
from harness.registry import load_plugin, plugin_names

AUTO = "auto"


def choose_environment(name: str) -> Environment:
    """Load the environment called `name`, and check that it works on this machine.

    Builds the image of nodes if it is missing. For the name `auto`, prints the chosen environment
    and the reason. Raises `UsageError`, with advice, if the environment does not work.
    """
    if name != AUTO:
        if name not in plugin_names("environments"):
            names = [AUTO, *plugin_names("environments")]
            raise UsageError(f"--env is {name!r}; {choices_near(name, names)}")
        environment: Environment = load_plugin("environments", name)
        environment.prepare(note)
        reason = environment.unavailable()
        if reason is not None:
            raise UsageError(f"--env {name} cannot be used here: {reason}")
        return environment
    docker: Environment = load_plugin("environments", "docker")
    try:
        docker.prepare(note)
        reason = docker.unavailable()
    except InfrastructureError as error:
        reason = str(error)
    if reason is None:
        note("environment docker: an engine answers and the node image exists")
        return docker
    note(f"environment process, not docker: {reason}")
    process: Environment = load_plugin("environments", "process")
    missing = process.unavailable()
    if missing is not None:
        raise UsageError(f"neither docker ({reason}) nor process ({missing}) can be used here")
    return process
