"""Systems that a TOML file declares, without Python: nodes, client, leader and operations.

`harness run --system FILE.toml` runs such a system; `docs/your-system.md` explains the file. `file`
and `document` read the file, `nodes` and `compose` declare its nodes, and `protocols` and
`operations` communicate with the nodes.
"""

from targets.declared.target import DeclaredTarget

__all__ = ["DeclaredTarget"]
