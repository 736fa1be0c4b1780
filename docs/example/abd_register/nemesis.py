"""Nemeses for a register without a leader, for which the built-in ones do not fit.

`kill-leader` would never hit a node, and `partition-halves` cuts links between nodes that never
talk to each other. (The harness notices this: such runs are `unknown`, because they prove nothing.)
"""

from harness.faults.nemesis_from_text import AimedNemesis

KILL_NODE = AimedNemesis(
    "kill-node", "kill any node (SIGKILL), start it again later on its disk", "kill one"
)
CUT_NODE = AimedNemesis("cut-node", "cut any node off from all clients", "cut one from client")
