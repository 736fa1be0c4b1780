"""Images that are built from a folder, and the Debian mirror of their base image."""

import pytest

from harness.cluster import NodeSpec, Variant
from harness.environments.docker.image import dockerfiles, image
from harness.environments.docker.image.debian import (
    AptSource,
    Mirror,
    choose_mirror,
    read_sources,
)
from harness.environments.docker.image.dockerfiles import built_tag, image_of, provide_images
from harness.errors import InfrastructureError, StartError, UsageError


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "My Server"
    (made / "conf").mkdir(parents=True)
    (made / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    (made / "conf" / "a.yml").write_text("a: 1\n")
    return made


def node(name="n", **fields):
    return NodeSpec(**({"role": "r", "ports": (80,), "command": ("run",)} | fields), name=name)


class FakeEngine:
    def __init__(self, *there):
        self.there = set(there)
        self.built = []
        self.refuses = False

    def image_id(self, tag):
        return "id" if tag in self.there else None

    def pull(self, tag, *, timeout_s):
        if self.refuses:
            raise InfrastructureError("no registry answers")
        self.there.add(tag)

    def build(self, context, tag, *, network, arguments, labels, progress):
        if self.refuses:
            raise InfrastructureError("a step failed")
        self.built.append((tag, arguments["BASE"]))
        self.there.add(tag)


def test_the_tag_follows_everything_in_the_folder(folder, monkeypatch):
    tags = [built_tag(str(folder))]
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("x")
    assert built_tag(str(folder)) == tags[0]

    (folder / "conf" / "a.yml").write_text("a: 2\n")
    tags.append(built_tag(str(folder)))
    (folder / "conf" / "a.yml").rename(folder / "conf" / "b.yml")
    tags.append(built_tag(str(folder)))
    (folder / "conf" / "b.yml").chmod(0o755)
    tags.append(built_tag(str(folder)))
    monkeypatch.setattr(image, "PYTHON_VERSION", "3.99")
    tags.append(built_tag(str(folder)))

    assert len(set(tags)) == len(tags)
    assert all(tag.startswith("harness-built-my-server:") for tag in tags)


def test_a_folder_of_a_package_is_found():
    assert built_tag("{package:tests}/tests/worlds/image").startswith("harness-built-image:")


def test_invalid_build_folders_are_refused(folder, monkeypatch):
    with pytest.raises(UsageError, match="/nowhere has no such file"):
        built_tag("/nowhere")
    with pytest.raises(UsageError, match="no_such_thing"):
        built_tag("{package:no_such_thing}/x")
    monkeypatch.setattr(dockerfiles, "_CONTEXT_BYTES_MAX", 10)
    with pytest.raises(UsageError, match="more than 10 bytes"):
        built_tag(str(folder))


def test_images_are_built_or_pulled_once(folder):
    tag = built_tag(str(folder))
    engine, messages = FakeEngine("there:1"), []
    nodes = [
        node("a", dockerfile=str(folder)),
        node("b", dockerfile=str(folder)),
        node("c", image="there:1", variants={"new": Variant(image="away:2")}),
        node("d"),
    ]

    for _ in range(2):
        provide_images(engine, nodes, messages.append)

    assert engine.built == [(tag, image.image_tag())]
    assert engine.there == {"there:1", "away:2", tag}
    assert [line.split()[:2] for line in messages] == [["building", tag], ["pulling", "away:2"]]
    assert [image_of(spec) for spec in nodes] == [tag, tag, "there:1", None]


def test_an_unavailable_image_is_reported_with_its_node(folder):
    engine = FakeEngine()
    engine.refuses = True
    with pytest.raises(StartError, match=r"'x:1' of node 'n'.*no registry.*`dockerfile`"):
        provide_images(engine, [node(image="x:1")], print)
    with pytest.raises(StartError, match="cannot be built: a step failed"):
        provide_images(engine, [node(dockerfile=str(folder))], print)


MIRROR = AptSource("http://deb.debian.org/debian", "bookworm", "main", "/k/debian-archive.gpg")
COMPANY = AptSource("https://mirror.company.example/apt/deb/", "bookworm", "main")
TRAP = AptSource("https://packages.microsoft.com/debian/12/prod", "bookworm", "main")


def origins(**by_host):
    def origin(uri, suite):
        assert suite == "bookworm"
        return by_host.get(uri.split("/")[2].replace(".", "_").replace("-", "_"))

    return origin


def test_entries_are_those_of_apt(tmp_path, monkeypatch):
    program = tmp_path / "apt-get"
    lines = "http://a/debian/|sid|main|/k/a.gpg,/k/b.gpg\nhttp://b/|sid|contrib|ABCDEF01\nc|d|e|\n"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{lines}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert read_sources() == [
        AptSource("http://a/debian/", "sid", "main", "/k/a.gpg"),
        AptSource("http://b/", "sid", "contrib", None),
        AptSource("c", "d", "e", None),
    ]
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert read_sources() == []


@pytest.mark.parametrize(
    ("entries", "hosts", "uri"),
    [
        # a vendor may use Debian's names, but its release file states the true origin
        (
            [TRAP, MIRROR],
            {"packages_microsoft_com": "microsoft-debian", "deb_debian_org": "Debian"},
            MIRROR.uri,
        ),
        (
            [TRAP, COMPANY],
            {"mirror_company_example": "Debian", "packages_microsoft_com": "microsoft"},
            COMPANY.uri.rstrip("/"),
        ),
        ([MIRROR._replace(suite="trixie")], {"deb_debian_org": "Debian"}, MIRROR.uri),
    ],
)
def test_the_archive_of_debian_is_chosen(entries, hosts, uri):
    chosen = choose_mirror(entries, "bookworm", origins(**hosts))
    assert chosen == Mirror(uri, "bookworm", entries[-1].keyring)


@pytest.mark.parametrize(
    "source",
    [
        AptSource("http://deb.debian.org/debian-security", "bookworm-security", "main"),
        AptSource("http://deb.debian.org/debian", "bookworm", "contrib"),
        AptSource("cdrom:[Debian]/", "bookworm", "main"),
        AptSource("http://deb.nodesource.com/node_20.x", "nodistro", "main"),
    ],
)
def test_entries_that_cannot_be_the_archive_are_not_even_asked(source):
    def origin(uri, suite):
        raise AssertionError(uri)

    with pytest.raises(
        InfrastructureError, match=r"deb http://deb\.debian\.org/debian bookworm main"
    ):
        choose_mirror([source], "bookworm", origin)


def test_the_error_quotes_each_engine_and_its_answer():
    with pytest.raises(InfrastructureError, match=r"prod \(microsoft\)"):
        choose_mirror([TRAP], "bookworm", origins(packages_microsoft_com="microsoft"))
