"""`harness fetch hive` downloads the listed files, checks hashes, and names missing programs."""

import hashlib
import os
import tarfile

import pytest

from harness.cli import main
from harness.cli.parser import Parser
from harness.cli.run.case_options import (
    case_from,
    parse_case_options,
    parse_target_options,
    target_case_from,
)
from harness.errors import InfrastructureError, UsageError
from harness.nodes.declaration import BASE
from harness.nodes.deployment import as_variant
from harness.plan.planning import plan_case
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from targets.apache_hive import ApacheHiveTarget, artefacts, fetching
from targets.apache_hive.artefacts import HIVE3, HIVE4, RELEASES
from targets.artefacts import Artefact, lock_of
from targets.hive import HiveTarget
from targets.hive.members import IDLE, SERVING

ARCHIVE = "hive-standalone-metastore-server"
SCHEMA = "scripts/metastore/upgrade/postgres/hive-schema-4.0.0.postgres.sql"
MAVEN = """#!/bin/sh
into=$(sed -n 's|.*<outputDirectory>\\(.*\\)</outputDirectory>.*|\\1|p' "$3")
cp "$REPOSITORY"/* "$into"
"""
JAVAC = """#!/bin/sh
while [ "$1" != -d ]; do shift; done
mkdir -p "$2"
echo compiled > "$2/EventLog.class"
"""
JAVA = """#!/bin/sh
echo 'openjdk version "17.0.1"' >&2
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """Install a fake Maven that delivers the two files of the list; return their folder."""
    repository, programs = tmp_path / "repository", tmp_path / "bin"
    for folder in (repository, programs, tmp_path / "cache"):
        folder.mkdir()
    for name, text in (("mvn", MAVEN), ("javac", JAVAC), ("java", JAVA)):
        program(programs / name, text)
    inner = tmp_path / "schema.sql"
    inner.write_text("create table x ();\n")
    archive = repository / f"{ARCHIVE}-4.0.1-bin.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(inner, f"metastore-4.0.1/{SCHEMA}")
    (repository / "avro-1.7.7.jar").write_bytes(b"a jar")
    lock = "# the list\n" + "".join(
        f"{coordinates} {hashlib.sha256((repository / file).read_bytes()).hexdigest()}\n"
        for coordinates, file in (
            (f"org.apache.hive:{ARCHIVE}:4.0.1:tar.gz:bin", archive.name),
            ("org.apache.avro:avro:1.7.7:jar", "avro-1.7.7.jar"),
        )
    )
    path = tmp_path / "artefacts.lock"
    path.write_text(lock)
    monkeypatch.setattr(artefacts, "_LOCK", path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REPOSITORY", str(repository))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return repository


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_the_list_pins_every_file(release):
    wanted = lock_of(release.lock_text())
    (archive,) = (each for each in wanted if each.type == "tar.gz")
    assert archive.version == release.version
    assert {len(each.sha256) for each in wanted} == {64}
    assert len({each.file for each in wanted}) == len(wanted) > 90
    assert lock_of("# x\ng:n:1:jar:linux abc\n") == (
        Artefact("g", "n", "1", "jar", "linux", "abc"),
    )
    assert lock_of("g:n:1:jar:linux abc")[0].file == "n-1-linux.jar"


def test_files_are_fetched_whole_and_once(maven, capsys):
    assert main(["fetch", "hive"]) == 0
    place = HIVE4.require()
    assert capsys.readouterr().out == f"{place}\n"
    assert (place / "hive" / SCHEMA).read_text() == "create table x ();\n"
    assert [path.name for path in (place / "hadoop").iterdir()] == ["avro-1.7.7.jar"]
    assert (place / "listener" / "EventLog.class").is_file()
    for path in maven.iterdir():
        path.unlink()
    assert main(["fetch", "hive"]) == 0  # nothing is downloaded
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_another_file_is_refused_and_leaves_nothing(maven):
    (maven / "avro-1.7.7.jar").write_bytes(b"another jar")
    with pytest.raises(InfrastructureError, match=r"avro-1\.7\.7\.jar has the SHA-256"):
        fetching.fetch(print)
    assert list(HIVE4.folder().place.parent.iterdir()) == []
    (maven / "avro-1.7.7.jar").unlink()
    with pytest.raises(InfrastructureError, match="did not fetch avro"):
        fetching.fetch(print)


def test_another_list_is_fetched_anew(maven):
    fetching.fetch(print)
    lock = artefacts._LOCK
    lock.write_text(lock.read_text() + "# changed\n")
    with pytest.raises(UsageError, match="another version"):
        HIVE4.require()
    fetching.fetch(print)
    HIVE4.require()


def test_a_release_has_its_own_folder_and_list(maven, tmp_path, monkeypatch):
    fetching.fetch(print)
    archive = maven / "hive-standalone-metastore-3.1.3-bin.tar.gz"
    (maven / f"{ARCHIVE}-4.0.1-bin.tar.gz").rename(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    more = tmp_path / "more.lock"
    more.write_text(f"org.apache.hive:hive-standalone-metastore:3.1.3:tar.gz:bin {digest}\n")
    older = HIVE3._replace(more=str(more))
    monkeypatch.setitem(RELEASES, "3.1.3", older)
    with pytest.raises(UsageError, match=r"harness fetch hive 3\.1\.3"):
        older.require()
    assert fetching.fetch(print, "3.1.3") == older.require() != HIVE4.require()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("mvn", "#!/bin/sh\necho '[ERROR] no route to host'\nexit 1\n", "no route to host"),
        ("javac", "#!/bin/sh\necho 'cannot find symbol'\nexit 1\n", "cannot find symbol"),
        ("java", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", "Hive needs 17 or newer"),
    ],
)
def test_failures_are_quoted(maven, tmp_path, name, text, words):
    del maven
    program(tmp_path / "bin" / name, text)
    with pytest.raises(InfrastructureError, match=words):
        fetching.fetch(print)
    assert list(HIVE4.folder().place.parent.iterdir()) == []


@pytest.mark.parametrize(("name", "package"), [("mvn", "maven"), ("javac", "openjdk-17-jdk")])
def test_missing_programs_are_named_with_their_package(maven, tmp_path, monkeypatch, name, package):
    del maven
    (tmp_path / "bin" / name).unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(InfrastructureError, match=package):
        fetching.fetch(print)


def test_the_target_says_how_to_get_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target = ApacheHiveTarget()
    options = with_defaults("target", target.name, target.options, {})
    settings = TargetSettings(profile="hive4", bugs=(), options=options)
    with pytest.raises(UsageError, match="harness fetch hive"):
        target.nodes(settings)
    monkeypatch.setattr("targets.apache_hive.target._LIBRARIES", ("no_such_library",))
    with pytest.raises(UsageError, match=r"catalog-harness\[hive\]"):
        target.nodes(settings)


def test_the_profile_is_hive4_unless_another_is_asked_for():
    def profile(*words):
        return case_from(parse_case_options(Parser(prog="t"), ["--target", *words]), 1).profile

    def stands_with(*words):
        parsed = parse_target_options(Parser(prog="t"), ["--target", *words])
        return target_case_from(parsed, 1).profile

    for asked in (profile, stands_with):
        assert asked("apache-hive") == "hive4"
        assert asked("apache-hive", "--profile", "strict") == "strict"
        assert asked("hive") == "strict"


def test_tokens_are_refused_for_want_of_kerberos(maven):
    del maven
    fetching.fetch(print)  # the missing program is reported before anything is fetched
    words = ["--target", "apache-hive", "--workload", "hms-tokens"]
    parsed = parse_case_options(Parser(prog="t"), words)
    with pytest.raises(UsageError, match="need Kerberos"):
        plan_case(case_from(parsed, 1), None)


def deployed(**given):
    target = ApacheHiveTarget()
    options = with_defaults("target", target.name, target.options, given)
    settings = TargetSettings(profile="hive4", bugs=(), options=options, environment="process")
    return {node.name: node for node in target.nodes(settings) if node.role == "hms"}


def test_spares_are_idle_at_first_and_any_may_come_and_go_where_there_are_some(maven):
    del maven
    fetching.fetch(print)
    usual, nodes = deployed(), deployed(spare_metastores=1)
    assert [*usual] == ["hms1", "hms2"]
    assert not any(node.variants for node in usual.values())
    assert [*nodes] == ["hms1", "hms2", "hms3"]
    serves = usual["hms1"].command
    forms = {
        name: {form: as_variant(node, form).command for form in (BASE, *node.variants)}
        for name, node in nodes.items()
    }
    idle = nodes["hms3"].command
    member = {BASE: serves, IDLE: idle}
    assert forms == {"hms1": member, "hms2": member, "hms3": {BASE: idle, SERVING: serves}}
    assert "HiveMetaStore" in " ".join(serves)
    assert "HiveMetaStore" not in " ".join(idle)


def test_real_metastores_count_the_age_of_events_in_whole_seconds(maven):
    del maven
    fetching.fetch(print)
    for given_ms in (1, 1500):
        with pytest.raises(UsageError, match="whole seconds"):
            deployed(event_ttl_ms=given_ms)
    site = deployed(event_ttl_ms=2000)["hms1"].files["metastore-site.xml"]
    name = "hive.metastore.event.db.listener.timetolive"
    assert f"<name>{name}</name><value>2s</value>" in site


def test_strict_permits_nothing_and_clients_are_the_bundled_ones():
    target = ApacheHiveTarget()
    options = with_defaults("target", target.name, target.options, {})

    def permits(profile, **given):
        settings = TargetSettings(profile=profile, bugs=(), options={**options, **given})
        return {permit.name for permit in target.permits(settings)}

    assert permits("strict") == {"no-kdc"}
    for store in ("memory", "db", "zookeeper"):
        stale = {"token-stale-read"} if store == "zookeeper" else set()
        assert permits("strict", kdc=True, token_store=store) == {"token-renew-gap", *stale}
    assert "token-memory" in permits("hive4", kdc=True)
    assert {"drop-twice", "drop-missed", "torn-get"} <= permits("hive4")
    ours = {option.name for option in HiveTarget.options}
    assert {option.name for option in target.options} - {"kdc"} < ours


def test_nothing_else_can_be_fetched(capsys):
    assert main(["fetch", "oracle"]) == 254
    assert "hive" in capsys.readouterr().err
