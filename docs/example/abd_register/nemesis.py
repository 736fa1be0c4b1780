"""Nemeses of our own, since the built-in ones do not fit a register without a leader.

`kill-leader` would never hit, and `partition-halves` cuts links between nodes that never talk to
each other. (The harness notices: such runs are `unknown`, since nothing was proven.)
"""

from harness.faults.nemesis_from_text import AimedNemesis

KILL_NODE = AimedNemesis(
    "kill-node", "kill any node (SIGKILL), start it again later on its disk", "kill one"
)
CUT_NODE = AimedNemesis("cut-node", "cut any node off from all clients", "cut one from client")
