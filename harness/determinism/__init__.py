"""The determinism lint: finds in target code what no seed can replay.

`python -m harness.determinism PATH...` prints `path:line: rule: message` for each finding and exits
1 if there is any. The rules follow the restricted members of Temporal's Python SDK and hazards that
were measured under different hash seeds:

* `import`, `call`: clocks, randomness, threads, sockets, files, processes; a target must use
  `harness.env.Env` for all of these. `random` may be imported for the annotation `random.Random`.
* `set-order`: the order of a set (or of `keys() & other`) differs from process to process, so code
  that consumes it in order needs `sorted(...)`.
* `global`: in simulation all nodes share one interpreter, so module state is shared state.

Sets are recognised by displays, calls, operators, and by annotations and assignments of names,
attributes, parameters and results, over all files that are linted together; nothing else is
inferred. A line with `# determinism: <reason>` is excused; reviewers judge the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.determinism.kinds import Names
from harness.determinism.linter import Finding, Linter

__all__ = ["Finding", "lint_paths", "lint_source"]


def _lint(trees: Sequence[tuple[str, str, ast.Module]]) -> list[Finding]:
    names = Names()
    for _, _, tree in trees:
        names.learn(tree)
    findings: list[Finding] = []
    for path, text, tree in trees:
        linter = Linter(path, text, names)
        linter.visit(tree)
        findings += linter.findings
    return sorted(set(findings))


def lint_source(text: str, *, path: str = "<text>") -> list[Finding]:
    """Lint the text of one file alone. Raises `SyntaxError`."""
    return _lint([(path, text, ast.parse(text, path))])


def lint_paths(paths: Iterable[Path]) -> list[Finding]:
    """Lint files, and all Python files in folders, together. Raises `OSError` and `SyntaxError`."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    trees = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        trees.append((str(file), text, ast.parse(text, str(file))))
    return _lint(trees)
