"""Base classes and protocols of plug-ins (`harness.registry` finds them)."""

from __future__ import annotations

from typing import Final

from harness.ops import Completion, Request
from harness.plugins._base import Plugin, override
from harness.plugins._exam import BugSwitch, PlantedDefect
from harness.plugins._runs import (
    Checker,
    Diagnosis,
    HistoryModel,
    Nemesis,
    PreparedCheck,
    Reporter,
    SoakExecutor,
    SoakSink,
    SunkRuns,
    Verb,
    Workload,
)
from harness.plugins._systems import (
    Ask,
    Client,
    Convergence,
    Deployment,
    Draft,
    NodeRole,
    Operation,
    Restart,
    RestartingOperation,
    Roles,
    Said,
    Scene,
    System,
    Target,
    TargetSettings,
    first_roles,
)
from harness.plugins._twins import KnownDifference, TwinSide
from harness.plugins._worlds import (
    DeploymentPlan,
    Environment,
    KeepsData,
    Session,
)
from harness.plugins.options import Option

__all__ = [
    "API_VERSION",
    "NEMESIS_API_VERSION",
    "TARGET_API_VERSION",
    "Ask",
    "BugSwitch",
    "Checker",
    "Client",
    "Completion",
    "Convergence",
    "Deployment",
    "DeploymentPlan",
    "Diagnosis",
    "Draft",
    "Environment",
    "HistoryModel",
    "KeepsData",
    "KnownDifference",
    "Nemesis",
    "NodeRole",
    "Operation",
    "Option",
    "PlantedDefect",
    "Plugin",
    "PreparedCheck",
    "Reporter",
    "Request",
    "Restart",
    "RestartingOperation",
    "Roles",
    "Said",
    "Scene",
    "Session",
    "SoakExecutor",
    "SoakSink",
    "SunkRuns",
    "System",
    "Target",
    "TargetSettings",
    "TwinSide",
    "Verb",
    "Workload",
    "first_roles",
    "override",
]

API_VERSION: Final = 1
NEMESIS_API_VERSION: Final = 2
TARGET_API_VERSION: Final = 2
