"""Which Debian mirror this machine uses: its own apt source entries, read and told apart.

Both formats of sources.list(5) are read, one-line (`*.list`) and deb822 (`*.sources`). Vendors put
entries beside Debian's, some of them with Debian's own suite and component names, so an entry is
only taken after the mirror itself said `Origin: Debian` in its release file; the order in which
entries are asked is by how much they look like Debian's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from harness.errors import InfrastructureError

_DEBIAN_SUITES: Final = (
    *("bullseye", "bookworm", "trixie", "forky", "duke"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"),
)
_SCHEMES: Final = frozenset({"http", "https", "file"})  # what debootstrap can read
_OPTIONS = re.compile(r"\[(?P<options>[^\]]*)\]")


class AptSource(NamedTuple):
    """One archive that apt is told of: one URI with its suites and components."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str | None = None


class Mirror(NamedTuple):
    """Where to get Debian from."""

    uri: str
    suite: str
    keyring: str | None


def _keyring(value: str | None) -> str | None:
    """Signed-By may also be a fingerprint or a whole key; then apt's own keyring is used."""
    first = (value or "").split(",")[0].strip()
    return first if first.startswith("/") else None


def parse_one_line(text: str) -> list[AptSource]:
    """`deb [options] URI suite component...`, one a line."""
    found = []
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        options: dict[str, str] = {}
        match = _OPTIONS.search(line)
        if match is not None:
            pairs = (item.partition("=") for item in match["options"].split())
            options = {name.lower(): value for name, _, value in pairs}
            line = line[: match.start()] + line[match.end() :]
        words = line.split()
        if len(words) >= 4 and words[0] == "deb":
            keyring = _keyring(options.get("signed-by"))
            found.append(AptSource(words[1], (words[2],), tuple(words[3:]), keyring))
    return found


def _stanzas(text: str) -> Iterable[dict[str, str]]:
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0].isspace():
            if last:
                fields[last] += "\n" + line.strip()
        else:
            name, _, value = line.partition(":")
            last = name.strip().lower()
            fields[last] = value.strip()


def parse_deb822(text: str) -> list[AptSource]:
    """Stanzas with `Types`, `URIs`, `Suites`, `Components`, maybe `Signed-By` and `Enabled`."""
    found = []
    for fields in _stanzas(text):
        enabled = fields.get("enabled", "yes").lower() not in {"no", "false", "off", "0"}
        if not enabled or "deb" not in fields.get("types", "").split():
            continue
        suites = tuple(fields.get("suites", "").split())
        components = tuple(fields.get("components", "").split())
        keyring = _keyring(fields.get("signed-by"))
        found += [
            AptSource(uri, suites, components, keyring) for uri in fields.get("uris", "").split()
        ]
    return found


def read_sources(etc_apt: Path = Path("/etc/apt")) -> list[AptSource]:
    """All entries of this machine; none on a machine without apt."""
    found = []
    folder = etc_apt / "sources.list.d"
    for path in [etc_apt / "sources.list", *sorted(folder.glob("*.list"))]:
        if path.is_file():
            found += parse_one_line(path.read_text(encoding="utf-8", errors="replace"))
    for path in sorted(folder.glob("*.sources")):
        found += parse_deb822(path.read_text(encoding="utf-8", errors="replace"))
    return found


def _likeness(source: AptSource, suite: str) -> int:
    """How much an entry looks like Debian's own archive; higher is asked earlier."""
    url = urlsplit(source.uri)
    return (
        8 * (suite in source.suites)
        + 4 * ("debian-archive" in (source.keyring or ""))
        + 2 * (url.path.rstrip("/").endswith("/debian"))
        + (url.hostname or "").endswith("debian.org")
    )


def choose_mirror(
    sources: Iterable[AptSource], suite: str, origin: Callable[[str, str], str | None]
) -> Mirror:
    """The first entry that serves Debian's `suite`.

    `origin(uri, suite)` reads the `Origin` of the suite's release file, `None` where there is none.
    An entry for another Debian suite will do, since mirrors carry them all. Raises
    `InfrastructureError` that lists what was asked.
    """
    candidates = [
        source
        for source in sources
        if "main" in source.components
        and urlsplit(source.uri).scheme in _SCHEMES
        and any(name in _DEBIAN_SUITES for name in source.suites)
    ]
    candidates.sort(key=lambda source: -_likeness(source, suite))  # stable: else in file order
    asked = []
    for source in candidates:
        answer = origin(source.uri, suite)
        if answer == "Debian":
            return Mirror(source.uri.rstrip("/"), suite, source.keyring)
        asked.append(f"{source.uri} ({answer or 'no release file'})")
    raise InfrastructureError(
        f"no apt source of this machine serves Debian {suite} with component main; asked: "
        f"{', '.join(asked) or 'none, /etc/apt has no such entry'}. Add the line "
        f"`deb http://deb.debian.org/debian {suite} main` to /etc/apt/sources.list"
    )
