"""Finds this machine's Java, for Spark, Hive's metastores and Kudu's client."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from harness.errors import InfrastructureError, clipped

JAVA_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_COMPILE_S: Final = 300.0
_ERRORS_MAX: Final = 1000


def java_program() -> str | None:
    """Return the path of `java` in JAVA_HOME, or else on PATH; `None` if it is not on PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def check_java(who: str) -> str:
    """Return the version and path of the Java that `who` will use.

    Raises `InfrastructureError`, with the fix, if Java is missing, broken or too old.
    """
    home, java = os.environ.get("JAVA_HOME"), java_program()
    fix = "install a Java runtime of version 17 or 21 (Debian: apt install openjdk-17-jre-headless)"
    if java is None:
        raise InfrastructureError(f"{who} needs Java, and there is none on PATH; {fix}")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        where = "JAVA_HOME" if home else "PATH"
        raise InfrastructureError(f"{java} (from {where}) does not run: {error}; {fix}") from error
    output = answer.stderr + answer.stdout
    match = _VERSION.search(output)
    if match is None:
        raise InfrastructureError(f"{java} -version prints no version: {output[:200]!r}; {fix}")
    if int(match[1]) < JAVA_MIN:
        raise InfrastructureError(
            f"{java} is Java {match[1]}; {who} needs {JAVA_MIN} or newer: {fix}, and let JAVA_HOME "
            "point to it"
        )
    return f"Java {match[1]} ({java})"


def java_compiler(who: str) -> str:
    """Return the path of `javac`, next to `java` or on PATH; raises `InfrastructureError`."""
    java = java_program()
    sibling = None if java is None else Path(java).with_name("javac")
    compiler = str(sibling) if sibling and sibling.is_file() else shutil.which("javac")
    if compiler is None:
        raise InfrastructureError(
            f"{who} needs a Java compiler, and there is no javac in the folder of java or on "
            "PATH; install one (Debian: apt install openjdk-17-jdk-headless)"
        )
    return compiler


def compile_java(compiler: str, source: Path, class_path: str, into: Path) -> None:
    """Compile one file into the folder `into`; raises `InfrastructureError`."""
    command = [compiler, "--release", str(JAVA_MIN), "-nowarn", "-d", str(into)]
    command += ["-cp", class_path, str(source)]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"cannot run {compiler}: {error}") from error
    if answer.returncode != 0:
        reason = clipped(" ".join((answer.stdout + answer.stderr).split()), _ERRORS_MAX)
        raise InfrastructureError(f"{compiler} cannot compile {source.name}: {reason}")
