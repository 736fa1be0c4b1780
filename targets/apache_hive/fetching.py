"""`harness fetch hive`: the artefacts from Maven Central, by Maven, whose mirrors and proxies hold.

Everything is put together in a folder beside its place, hashed, and moved there whole.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from harness.errors import InfrastructureError
from harness.java import check_java
from targets.apache_hive.artefacts import (
    ARCHIVE,
    STAMP,
    VERSION,
    Artefact,
    folder,
    lock_digest,
    lock_of,
    lock_text,
)

__all__ = ["fetch"]

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_MAVEN_S: Final = 1800
_LOG_LINES_MAX: Final = 12
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>harness</groupId><artifactId>fetch</artifactId><version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>{group}</groupId><artifactId>{plugin}</artifactId><version>{version}</version>
    <configuration>
      <outputDirectory>{folder}</outputDirectory>
      <artifactItems>
{items}
      </artifactItems>
    </configuration>
  </plugin></plugins></build>
</project>
"""


def fetch(progress: Callable[[str], None]) -> Path:
    """The folder with all artefacts, fetched unless they are there, with the hashes of the list.

    Raises `InfrastructureError` where Java or Maven lacks, and for files that are not what the list
    says.
    """
    java = check_java("Hive")
    place, wanted = folder(), lock_of(lock_text())
    stamp = place / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == lock_digest():
        progress(f"Hive Metastore {VERSION} is there; it runs on {java}")
        return place
    maven = shutil.which("mvn")
    if maven is None:
        raise InfrastructureError(
            "artefacts are fetched by Maven, and there is no mvn on PATH; install it (Debian: apt "
            "install maven)"
        )
    progress(f"fetching Hive Metastore {VERSION}, {len(wanted)} files, about 135 MB")
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{place.name}-") as scratch:
        new = Path(scratch) / place.name
        jars = new / "hadoop"
        jars.mkdir(parents=True)
        _run_maven(maven, wanted, jars, Path(scratch) / "pom.xml")
        check_hashes(jars, wanted)
        (archive,) = (jars / each.file for each in wanted if each.name == ARCHIVE)
        _unpack(archive, new / "hive")
        archive.unlink()
        (new / STAMP).write_text(lock_digest(), encoding="utf-8")
        if place.exists():
            shutil.rmtree(place)
        new.rename(place)
    progress(f"Hive Metastore {VERSION} is in {place}; it runs on {java}")
    return place


def _run_maven(maven: str, wanted: Iterable[Artefact], into: Path, pom: Path) -> None:
    group, plugin, version = _PLUGIN.split(":")
    text = _POM.format(
        group=group,
        plugin=plugin,
        version=version,
        folder=escape(str(into)),
        items="\n".join(map(_item, wanted)),
    )
    pom.write_text(text, encoding="utf-8")
    command = [maven, "--batch-mode", "--file", str(pom), f"{_PLUGIN}:copy"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_MAVEN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"Maven does not run: {error}") from error
    if answer.returncode != 0:
        lines = [line for line in answer.stdout.splitlines() if line.startswith("[ERROR]")]
        said = "".join(f"\n  {line}" for line in lines[:_LOG_LINES_MAX]) or f" {answer.stderr}"
        raise InfrastructureError(
            "Maven could not fetch the artefacts; a mirror or proxy is set in ~/.m2/settings.xml. "
            f"It said:{said}"
        )


def _item(artefact: Artefact) -> str:
    fields = {
        "groupId": artefact.group,
        "artifactId": artefact.name,
        "version": artefact.version,
        "type": artefact.type,
        "classifier": artefact.classifier,
    }
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items() if value)
    return f"        <artifactItem>{inner}</artifactItem>"


def check_hashes(files: Path, wanted: Iterable[Artefact]) -> None:
    """Raise `InfrastructureError` for a file that is missing or is another one."""
    for artefact in wanted:
        path = files / artefact.file
        if not path.is_file():
            raise InfrastructureError(f"Maven brought no {artefact.file}")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != artefact.sha256:
            raise InfrastructureError(
                f"{artefact.file} has the SHA-256 {found}, where the list says {artefact.sha256}: "
                "it is not the file that this harness was made with; remove it from Maven's "
                "repository (~/.m2) and from a mirror, and fetch again"
            )


def _unpack(archive: Path, into: Path) -> None:
    """The one folder of the archive, under another name."""
    with tarfile.open(archive) as tar:
        tar.extractall(into.parent / "unpacked", filter="data")
    (top,) = (into.parent / "unpacked").iterdir()
    top.rename(into)
    (into.parent / "unpacked").rmdir()
