"""Which mirror is taken from a machine's apt sources."""

import pytest

from harness.environments.docker.image.aptsources import (
    AptSource,
    Mirror,
    choose_mirror,
    parse_deb822,
    parse_one_line,
    read_sources,
)
from harness.errors import InfrastructureError

DEBIAN = """\
Types: deb deb-src
# http://snapshot.debian.org/archive/debian/20250520T000000Z
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://one.example/debian http://two.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
"""
VENDORS = """\
# comment
deb [arch=amd64 signed-by=/k/docker.gpg] https://download.docker.com/linux/debian bookworm stable
deb https://packages.microsoft.com/debian/12/prod bookworm main # a trap
deb-src http://deb.debian.org/debian bookworm main
deb http://deb.nodesource.com/node_20.x nodistro main
deb http://short.example/debian bookworm
"""
MIRROR = AptSource(
    "http://deb.debian.org/debian", ("bookworm",), ("main",), "/k/debian-archive.gpg"
)
TRAP = AptSource("https://packages.microsoft.com/debian/12/prod", ("bookworm",), ("main",))


def origins(**by_host):
    def origin(uri, suite):
        assert suite == "bookworm"
        return by_host.get(uri.split("/")[2].replace(".", "_").replace("-", "_"))

    return origin


def test_deb822_entries_are_read():
    found = parse_deb822(DEBIAN)

    assert found[0] == AptSource(
        "http://deb.debian.org/debian",
        ("bookworm", "bookworm-updates"),
        ("main", "contrib"),
        "/usr/share/keyrings/debian-archive-keyring.gpg",
    )
    assert [source.uri.split("/")[2] for source in found] == [
        "deb.debian.org",
        "deb.debian.org",
        "one.example",
        "two.example",
    ]
    assert found[2].keyring is None  # a whole key is no file


def test_one_line_entries_are_read():
    found = parse_one_line(VENDORS)

    assert [source.uri for source in found] == [
        "https://download.docker.com/linux/debian",
        "https://packages.microsoft.com/debian/12/prod",
        "http://deb.nodesource.com/node_20.x",
    ]
    assert found[0].keyring == "/k/docker.gpg"
    assert found[1].components == ("main",)


def test_all_files_of_a_machine_are_read_and_others_are_not(tmp_path):
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (tmp_path / "sources.list").write_text("deb http://a.example/debian sid main\n")
    (folder / "b.list").write_text("deb http://b.example/debian sid main\n")
    (folder / "c.sources").write_text(DEBIAN)
    (folder / "d.list.disabled").write_text("deb http://d.example/debian sid main\n")

    hosts = [source.uri.split("/")[2] for source in read_sources(tmp_path)]

    assert hosts[:3] == ["a.example", "b.example", "deb.debian.org"]
    assert "d.example" not in hosts
    assert read_sources(tmp_path / "nothing") == []


def test_a_vendor_with_debians_suite_and_component_is_not_taken():
    origin = origins(packages_microsoft_com="microsoft-debian", deb_debian_org="Debian")

    chosen = choose_mirror([TRAP, MIRROR], "bookworm", origin)

    assert chosen == Mirror("http://deb.debian.org/debian", "bookworm", "/k/debian-archive.gpg")


def test_a_mirror_that_does_not_look_like_debian_is_taken_when_it_says_so():
    company = AptSource("https://mirror.company.example/apt/deb/", ("bookworm",), ("main",))
    origin = origins(mirror_company_example="Debian", packages_microsoft_com="microsoft")

    assert choose_mirror([TRAP, company], "bookworm", origin).uri == company.uri.rstrip("/")


def test_a_mirror_of_another_release_will_do():
    trixie = AptSource("http://deb.debian.org/debian", ("trixie",), ("main",))

    chosen = choose_mirror([trixie], "bookworm", origins(deb_debian_org="Debian"))

    assert chosen.suite == "bookworm"


@pytest.mark.parametrize(
    "source",
    [
        AptSource("http://deb.debian.org/debian-security", ("bookworm-security",), ("main",)),
        AptSource("http://deb.debian.org/debian", ("bookworm",), ("contrib",)),
        AptSource("cdrom:[Debian]/", ("bookworm",), ("main",)),
        AptSource("http://deb.nodesource.com/node_20.x", ("nodistro",), ("main",)),
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


def test_blanks_and_ends_of_lines_mean_nothing():
    text = "Types : deb\nURIs: http://a\nSuites: bookworm\nComponents: main\n"
    off = f"Enabled: no \n{text}"
    found = parse_deb822(f"{text}\n{off}\n{text}".replace("\n", "\r\n"))
    assert [source.uri for source in found] == ["http://a", "http://a"]
