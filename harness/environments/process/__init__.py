"""The environment of local processes: no root, no containers, every link through a proxy."""

from harness.environments.process.environment import ProcessEnvironment

__all__ = ["ProcessEnvironment"]
