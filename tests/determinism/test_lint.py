"""The determinism linter finds code that a seed cannot replay, and accepts all other code."""

from pathlib import Path

import pytest

import harness.determinism.__main__ as command
from harness.determinism import lint_paths, lint_source

TARGETS = Path(__file__).parents[2] / "targets"

BAD = {
    "import": [
        "import time",
        "import os.path",
        "from os import environ",
        "from random import choice",
        "import socket as s",
        "from threading import Thread",
        "from concurrent.futures import ThreadPoolExecutor",
        "def f():\n    import uuid",
        "import logging",
    ],
    "call": [
        "import random\nrandom.shuffle(x)",
        "import random\nr = random.Random()",
        "import random as r\nr.random()",
        "from random import Random\nr = Random(1)",
        "import asyncio\nasync def f():\n    await asyncio.wait(ts)",
        "import asyncio as a\nasync def f():\n    async with a.TaskGroup() as g:\n        pass",
        "from asyncio import wait_for\nasync def f():\n    await wait_for(x, 1)",
        "import asyncio\nf = asyncio.all_tasks",
        "async def f(loop):\n    await loop.run_in_executor(None, g)",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.utcnow()",
        "def f(x):\n    return id(x)",
        "def f(x):\n    return hash(x) % 3",
        "def f(x):\n    return sorted(x, key=id)",
        "def f():\n    return open('x')",
    ],
    "set-order": [
        "def f():\n    for x in {1, 2}:\n        g(x)",
        "def f(xs):\n    for x in set(xs):\n        g(x)",
        "def f(peers: set[str]):\n    return [p for p in peers]",
        "def f(peers: 'frozenset[str] | None'):\n    return list(peers or ())",
        "def f(a):\n    s = frozenset(a)\n    return tuple(s)",
        "def f(a, b):\n    return list(set(a) - b)",
        "def f(a, b):\n    for k in a.keys() & b:\n        g(k)",
        "def f(a: set[str]):\n    return next(iter(a))",
        "def f(a: set[str]):\n    return ','.join(a)",
        "def f(a: set[str]):\n    return dict.fromkeys(a)",
        "def f(a: set[str]):\n    return max(a, key=len)",
        "def f(a: set[str]):\n    return sorted(a, key=len)",
        "def f(a: set[str]):\n    return a.pop()",
        "def f(a: set[str]):\n    return [*a]",
        "def f(a: set[str]):\n    x, y = a",
        "def f(a: set[str]):\n    return f'{a}'",
        "def f(a: set[str]):\n    yield from a",
        "def f(a: set[str]):\n    return {k: 1 for k in a}",
        "def f(a: set[str]):\n    return list(a.union([1]))",
        "def f(a: set[str]):\n    b = [x for x in range(3)]\n    b.extend(a)",
        "def f(a: dict[str, set[str]]):\n    for x in a['x']:\n        g(x)",
        "def f(a: dict[str, set[str]]):\n    for s in a.values():\n        g(list(s))",
        "def f(a: dict[str, set[str]]):\n    for k, s in a.items():\n        g(list(s))",
        "class C:\n    p: set[str]\n    def f(self):\n        for x in self.p:\n            g(x)",
        (
            "class C:\n    def __init__(self):\n        self.seen = set()\n"
            "    def f(self):\n        return list(self.seen)"
        ),
        (
            "class C:\n    @property\n    def voters(self) -> frozenset[str]: ...\n"
            "def f(c: C):\n    return [v for v in c.voters]"
        ),
        "def voters() -> set[str]: ...\ndef f():\n    return list(voters())",
        (
            "async def f(self):\n    for x in (await self.peers()):\n        g(x)\n"
            "class C:\n    async def peers(self) -> set[str]: ..."
        ),
        "def f(a: set[str], b):\n    for x in (a if b else ()):\n        g(x)",
        "def f(a: set[str]):\n    return list(y for y in a)",
    ],
    "global": [
        "cache = {}",
        "seen: set[str] = set()",
        "from collections import defaultdict\nx = defaultdict(list)",
        "from itertools import count\nIDS = count()",
        "CACHE = {}\ndef f(x):\n    CACHE[x] = 1",
        "CACHE = []\ndef f(x):\n    CACHE.append(x)",
        "N = 0\ndef f():\n    global N\n    N += 1",
        "class C:\n    seen = []",
    ],
}

GOOD = [
    "import random\ndef f(rng: random.Random) -> random.Random | None: ...",
    "from random import Random\nclass C:\n    rng: Random",
    (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import socket"
    ),
    "def f(a: set[str]):\n    for x in sorted(a):\n        g(x)",
    "def f(a: set[str]):\n    return sorted(x.upper() for x in a)",
    "def f(a: set[str]):\n    return {x for x in a} | a",
    "def f(a: set[str]):\n    return any(x for x in a) and len(a) and max(a)",
    "def f(a: set[str]):\n    return {*a, 'x'}",
    "def f(a: set[str], x):\n    return x in a",
    "def f(a: list[str]):\n    return list(a), a.pop(), [*a]",
    "def f(a: dict[str, int]):\n    for k in a:\n        g(k)",
    "def f(id: int):\n    return id(3)",
    "async def f(disk):\n    await disk.open('x')",
    "from typing import Final\nnames: Final = ['a']\nKINDS = {'a': 1}\n__all__ = ['f']",
    "def f(a: set[str]):\n    return sum(1 for x in a)",
    "import asyncio\nasync def f():\n    async with asyncio.timeout(1):\n        await g()",
    "def f(a: set[str]):\n    for x in a:  # determinism: only counts, in any order\n        g(x)",
    "import time  # determinism: type of a constant only",
    "def f():\n    x = [1]\n    x.append(2)",
    "class C:\n    def f(self, a: dict[str, set[str]]):\n        return list(a), sorted(a['x'])",
]


def rules_broken(texts):
    return {text: {finding.rule for finding in lint_source(text)} for text in texts}


@pytest.mark.parametrize("rule", BAD)
def test_hazards_are_found(rule):
    assert rules_broken(BAD[rule]) == {text: {rule} for text in BAD[rule]}


def test_harmless_code_passes():
    assert rules_broken(GOOD) == {text: set() for text in GOOD}


def test_an_excuse_needs_a_reason():
    assert lint_source("import time  # determinism:")


def test_attributes_are_known_across_files(tmp_path):
    (tmp_path / "a.py").write_text("class Config:\n    voters: frozenset[str]\n")
    (tmp_path / "b.py").write_text("def f(config):\n    return list(config.voters)\n")
    (finding,) = lint_paths([tmp_path])
    assert (str(tmp_path / "b.py"), 2, "set-order") == (finding.path, finding.line, finding.rule)


def test_command_prints_findings_and_exits_1(tmp_path, capsys):
    path = tmp_path / "x.py"
    path.write_text("\nimport time\n")
    assert command.main([str(path)]) == 1
    assert capsys.readouterr().out == (
        f"{path}:2: import: do not import 'time': use env.clock, loop.time() or asyncio.sleep\n"
    )
    path.write_text("x = 1\n")
    assert command.main([str(path)]) == 0


def test_command_reports_what_it_cannot_read(tmp_path, capsys):
    assert command.main([str(tmp_path / "absent.py")]) == 2
    (tmp_path / "x.py").write_text("def")
    assert command.main([str(tmp_path / "x.py")]) == 2
    assert "cannot lint" in capsys.readouterr().err


@pytest.mark.slow
def test_bundled_targets_are_clean():
    findings = [str(finding) for finding in lint_paths([TARGETS])]
    assert findings == []
