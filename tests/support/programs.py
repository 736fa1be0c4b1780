"""Runs a program to its end."""

import os
import subprocess
import sys


def run_program(*words, cwd=None, timeout_s=600, **variables):
    """Run a program with additional environment variables; return its exit code and output."""
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env={**os.environ, **variables},
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip


def python(code, *words, **options):
    """Run `code` in a separate interpreter, which must succeed; return its output."""
    done = run_program(sys.executable, "-c", code, *words, **options)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    return done.stdout
