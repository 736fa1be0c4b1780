"""The mirror that is chosen from a machine's apt sources."""

import pytest

from harness.environments.docker.image.debian import (
    AptSource,
    Mirror,
    choose_mirror,
    read_sources,
)
from harness.errors import InfrastructureError

MIRROR = AptSource("http://deb.debian.org/debian", "bookworm", "main", "/k/debian-archive.gpg")
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


def test_a_vendor_with_debians_suite_and_component_is_not_taken():
    origin = origins(packages_microsoft_com="microsoft-debian", deb_debian_org="Debian")

    chosen = choose_mirror([TRAP, MIRROR], "bookworm", origin)

    assert chosen == Mirror("http://deb.debian.org/debian", "bookworm", "/k/debian-archive.gpg")


def test_a_mirror_that_does_not_look_like_debian_is_taken_when_it_says_so():
    company = AptSource("https://mirror.company.example/apt/deb/", "bookworm", "main")
    origin = origins(mirror_company_example="Debian", packages_microsoft_com="microsoft")

    assert choose_mirror([TRAP, company], "bookworm", origin).uri == company.uri.rstrip("/")


def test_a_mirror_of_another_release_will_do():
    trixie = AptSource("http://deb.debian.org/debian", "trixie", "main")

    chosen = choose_mirror([trixie], "bookworm", origins(deb_debian_org="Debian"))

    assert chosen.suite == "bookworm"


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


def test_the_error_says_who_was_asked_and_what_they_said():
    with pytest.raises(InfrastructureError, match=r"prod \(microsoft\)"):
        choose_mirror([TRAP], "bookworm", origins(packages_microsoft_com="microsoft"))
