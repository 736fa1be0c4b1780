"""`harness fetch hive`: fetches a real metastore's files with Maven, which may use mirrors.

The files are collected and hashed in a temporary folder, which is then moved into the cache. The
release's bundled listener is compiled against these files.
"""

from __future__ import annotations

import shutil  # determinism: no node runs this module
import subprocess  # determinism: no node runs this module
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path  # determinism: no node runs this module
from typing import Final
from xml.sax.saxutils import escape

from harness.errors import InfrastructureError
from harness.support.java import check_java, compile_java, java_compiler
from targets.apache_hive.artefacts import ARCHIVES, DOCKERFILE, RELEASES
from targets.artefacts import Artefact, lock_of, sha256_of

VERSIONS: Final = tuple(RELEASES)
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


def fetch(progress: Callable[[str], None], version: str = VERSIONS[0]) -> Path:
    """Fetch all artefacts if they are missing or outdated, and return their folder.

    Raises `InfrastructureError` if Java or Maven is missing, or if a file has another hash than
    the list requires.
    """
    java = check_java("Hive")
    release = RELEASES[version]
    cache, wanted = release.folder(), lock_of(release.lock_text())
    place = cache.place
    if cache.is_complete:
        progress(f"Hive Metastore {version} is already in {place}; it runs on {java}")
        return place
    maven, compiler = _maven(), java_compiler("Hive's event listener")
    progress(f"fetching Hive Metastore {version}, {len(wanted)} files, about 135 MB")
    with cache.filled() as (new, scratch):
        jars = new / "hadoop"
        jars.mkdir()
        _run_maven(maven, wanted, jars, scratch / "pom.xml")
        check_hashes(jars, wanted)
        (archive,) = (jars / each.file for each in wanted if each.type == ARCHIVES)
        _unpack(archive, new / "hive")
        archive.unlink()
        classes = f"{new / 'hive' / 'lib'}/*:{new / 'hadoop'}/*"
        compile_java(compiler, release.listener, classes, new / "listener")
        shutil.copyfile(DOCKERFILE, new / DOCKERFILE.name)
    progress(f"Hive Metastore {version} is in {place}; it runs on {java}")
    return place


def _maven() -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise InfrastructureError(
            "Maven is needed to fetch the artefacts, but there is no mvn on PATH; install it "
            "(Debian: apt install maven)"
        )
    return maven


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
        raise InfrastructureError(f"cannot run {maven}: {error}") from error
    if answer.returncode != 0:
        raise InfrastructureError(
            "Maven could not fetch the artefacts (mirrors and proxies are set in "
            f"~/.m2/settings.xml); its output: {_maven_errors(answer.stdout + answer.stderr)}"
        )


def _maven_errors(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("[ERROR]")]
    return "\n  ".join(lines[:_LOG_LINES_MAX]) or output[-500:]


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
    """Raise `InfrastructureError` if a wanted artefact is not in `files` or has a wrong hash."""
    for artefact in wanted:
        path = files / artefact.file
        if not path.is_file():
            raise InfrastructureError(f"Maven did not fetch {artefact.file}")
        digest = sha256_of(path)
        if digest != artefact.sha256:
            raise InfrastructureError(
                f"{artefact.file} has the SHA-256 {digest}, but artefacts.lock requires "
                f"{artefact.sha256}: this version of the harness needs a different file; remove "
                "this one "
                "from Maven's repository (~/.m2) and from any mirror, and fetch again"
            )


def _unpack(archive: Path, into: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(into.parent / "unpacked", filter="data")
    (top,) = (into.parent / "unpacked").iterdir()
    top.rename(into)
    (into.parent / "unpacked").rmdir()
