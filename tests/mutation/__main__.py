"""Test of the suite by defects in checkers and phases: `python -m tests.mutation [NAME...]`.

Each defect in `mutations.toml` is planted in a copy of the tree, where the tests that the file
names for it must fail. Before that, these tests must pass without any defect. The table goes to
stdout; the exit code is 1 if a defect survived. This takes minutes, so it is not part of `make
test`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutation.mutations import MUTATIONS, ROOT, Mutation

COPIED = ("harness", "targets", "nemesis", "checkers", "workloads", "results", "tests", "examples")
FILES = ("pyproject.toml", "_harness_pytestplugin.py")
TIMEOUT_S = 600
PASSED, FAILED = 0, 1  # pytest's exit codes


def copy_tree(folder: Path) -> None:
    """Copy the files that tests of checkers and phases need."""
    unneeded = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=unneeded)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)


def run(folder: Path, tests: tuple[str, ...]) -> tuple[int | None, str]:
    """Run tests; return pytest's exit code (`None` at a timeout) and the first failed test."""
    options = ("-q", "-x", "--order-seed=0", "-p", "no:cacheprovider", "--timeout=120")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"no end within {TIMEOUT_S} s"
    first = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    told = first[0].partition(" - ")[0] if first else (done.stdout + done.stderr)[-300:].strip()
    return done.returncode, told


def judged(folder: Path, mutation: Mutation) -> tuple[str, str]:
    """Plant a defect; return its fate (such as "survived"), and the test that noticed it."""
    path = folder / mutation.file
    intact = path.read_text()
    path.write_text(mutation.applied(intact))
    try:
        code, told = run(folder, mutation.tests)
    finally:
        path.write_text(intact)
    if code == PASSED:
        return "SURVIVED", ""
    return ("caught", told) if code in {FAILED, None} else ("BROKEN", told)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations (default: all)")
    names = parser.parse_args().names
    if unknown := set(names) - {mutation.name for mutation in MUTATIONS}:
        parser.error(f"no such mutation: {', '.join(sorted(unknown))}; see mutations.toml")
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    tests = tuple(dict.fromkeys(test for mutation in chosen for test in mutation.tests))
    survived = 0
    with tempfile.TemporaryDirectory(prefix="harness-mutation-") as scratch:
        folder = Path(scratch)
        copy_tree(folder)
        code, told = run(folder, tests)
        if code != PASSED:
            print(f"the tests fail without any defect: {told}")
            return 2
        for mutation in chosen:
            word, told = judged(folder, mutation)
            survived += word != "caught"
            print(f"{word:8}  {mutation.name:42}  {mutation.file:40}  {told}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
