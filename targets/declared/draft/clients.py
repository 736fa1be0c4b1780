"""Drafts the table `[client]` and the operations: ports, users and passwords of servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.errors import UsageError
from harness.exact import whole_number
from targets.declared.draft.kinds import (
    CONSUL,
    ETCD,
    MYSQL,
    POSTGRES,
    REDIS,
    SENTINEL,
    ZOOKEEPER,
    Kind,
)
from targets.declared.draft.questions import Questions, Setting
from targets.declared.draft.survey import Service, names_of

__all__ = ["Line", "Ports", "client_lines", "http_operations", "ports_of"]

_PORT: Final = re.compile(r":(\d{1,5})(?=[/,\s]|$)")
_LOCAL: Final = re.compile(r"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(\d+)")
_MONITOR: Final = re.compile(r"sentinel\s+monitor\s+(\S+)")
_REQUIRED: Final = re.compile(r"requirepass\s+[\"']?([^\s\"']+)")


class Line(NamedTuple):
    """A key of the drafted file with its value, and a comment on the value's source."""

    key: str
    value: Any
    why: str = ""


class Ports(NamedTuple):
    """The port of each service. `assumed` is the port guessed for some services, or 0."""

    by_service: Mapping[str, int]
    assumed: int


def ports_of(kind: Kind | None, services: Sequence[Service], ask: Questions) -> Ports:
    """Return the port of each service; raises `UsageError`."""
    ports = {service.name: port_of(kind, service) for service in services}
    visible = Counter(filter(None, ports.values())).most_common(1)
    for service in services:
        if not ports[service.name] and not service.ports and visible:
            # The file does not show this service's port, so assume the port of its peers.
            ports[service.name] = visible[0][0]
    unknown = [service for service in services if not ports[service.name]]
    if not unknown:
        return Ports(ports, 0)
    usual = Counter(port for service in unknown for port in service.ports).most_common(1)
    answer = ask.text(
        f"The port on which {names_of(unknown)} serves clients",
        str(usual[0][0] if usual else 8080),
        lambda text: "" if 1 <= (whole_number(text) or 0) <= 65535 else "not a port",
    )
    port = int(answer.value)
    ports |= {service.name: port for service in unknown}
    return Ports(ports, port if answer.why else 0)


def port_of(kind: Kind | None, service: Service) -> int:
    """Return the port on which a service serves clients; 0 if the file does not show it."""
    text = _port_text(kind, service) or ""
    match = re.search(r"(\d{1,5})$", text.strip("/"))
    if match is not None:
        return int(match[1])
    if kind is not None and (kind.port in service.ports or not service.ports):
        return kind.port
    if kind is None:
        local = _LOCAL.search(service.health)
        if local is not None:
            return int(local[1])
    return service.ports[0] if len(service.ports) == 1 else 0


def _port_text(kind: Kind | None, service: Service) -> str | None:
    if kind is ETCD:
        text = service.flag("--listen-client-urls", "-listen-client-urls") or service.variable(
            "ETCD_LISTEN_CLIENT_URLS"
        )
        if text.startswith("https"):
            raise UsageError(
                f"{service.name} serves clients at {text}, and clients of the harness speak no "
                "TLS; make it http in the Compose file of the test"
            )
        return text.partition(",")[0]
    if kind in {REDIS, SENTINEL}:
        return service.flag("--port") or service.variable(
            "REDIS_SENTINEL_PORT_NUMBER" if kind is SENTINEL else "REDIS_PORT_NUMBER"
        )
    if kind is ZOOKEEPER:
        return service.variable("ZOO_PORT", "ZOO_PORT_NUMBER", "ZOOKEEPER_CLIENT_PORT")
    if kind is POSTGRES:
        return service.variable("PGPORT", "POSTGRESQL_PORT_NUMBER")
    if kind is MYSQL:
        return service.flag("--port") or service.variable("MYSQL_PORT_NUMBER")
    return None


def client_lines(
    kind: Kind | None, services: Sequence[Service], support: Sequence[Service], ask: Questions
) -> list[Line]:
    """Return the settings of the protocol.

    Raises `UsageError` for a server that needs a setting which the protocol does not have.
    """
    if kind is None:
        return []
    lines: Callable[..., list[Line]] | None = {
        ETCD.name: _etcd,
        MYSQL.name: _mysql,
        POSTGRES.name: _postgres,
        REDIS.name: _redis,
    }.get(kind.name)
    return [] if lines is None else lines(services, support, ask)


def _etcd(services: Sequence[Service], _: object, __: object) -> list[Line]:
    for service in services:
        if service.variable("ETCD_ROOT_PASSWORD"):
            raise UsageError(
                f"{service.name} sets ETCD_ROOT_PASSWORD, and clients of the harness have no "
                "password for etcd; drop it in the Compose file of the test (Bitnami's image "
                "wants ALLOW_NONE_AUTHENTICATION=yes then)"
            )
    return []


def _postgres(services: Sequence[Service], _: object, ask: Questions) -> list[Line]:
    user = _first(
        services,
        *("POSTGRES_USER", "POSTGRESQL_USERNAME", "POSTGRESQL_USER", "PGUSER_SUPERUSER"),
        *("PATRONI_SUPERUSER_USERNAME", "PGUSER"),
    )
    password = _first(
        services,
        *("POSTGRES_PASSWORD", "POSTGRESQL_PASSWORD", "PGPASSWORD_SUPERUSER"),
        *("PATRONI_SUPERUSER_PASSWORD", "PGPASSWORD"),
    )
    database = _first(services, "POSTGRES_DB", "POSTGRESQL_DATABASE", "PGDATABASE")
    if not database and user.why == "POSTGRES_USER":
        # By default, the image names the database after the user.
        database = Setting(user.value, "POSTGRES_USER")
    trusted = _first(services, "POSTGRES_HOST_AUTH_METHOD").value == "trust"
    lines = [_line("user", user), _password(password, trusted, "PostgreSQL", ask)]
    return [line for line in (*lines, _line("database", database)) if line.value or line.why]


def _mysql(services: Sequence[Service], _: object, ask: Questions) -> list[Line]:
    user = _first(services, "MYSQL_USER", "MARIADB_USER")
    names = ("MYSQL_PASSWORD", "MARIADB_PASSWORD")
    if not user:
        user = Setting("root", "no MYSQL_USER")
        names = ("MYSQL_ROOT_PASSWORD", "MARIADB_ROOT_PASSWORD")
    password = _first(services, *names)
    database = _first(services, "MYSQL_DATABASE", "MARIADB_DATABASE")
    if not database:
        database = ask.text("The database of MySQL in which clients may create tables", "mysql")
    empty = bool(
        _first(services, "MYSQL_ALLOW_EMPTY_PASSWORD", "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD")
    )
    lines = [_line("user", user), _password(password, empty, "MySQL", ask)]
    return [line for line in (*lines, _line("database", database)) if line.value or line.why]


def _redis(services: Sequence[Service], support: Sequence[Service], ask: Questions) -> list[Line]:
    lines = []
    password = _first(services, "REDIS_PASSWORD")
    for service in services:
        texts = [service.flag("--requirepass") or "", *map(_required, service.texts)]
        text = next(filter(None, texts), "")
        password = password or Setting(text, f"requirepass of {service.name}")
    if password.value:
        lines.append(_line("password", password))
    sentinels = [each for each in support if each.kind_name == SENTINEL.name]
    if sentinels:
        ports = {each.name: port_of(SENTINEL, each) or SENTINEL.port for each in sentinels}
        addresses = [f"{name}:{port}" for name, port in ports.items()]
        master = _master(sentinels)
        if not master:
            question = "The name under which the Sentinels monitor the primary"
            master = ask.text(question, "mymaster")
        lines += [Line("sentinels", addresses), _line("master", master)]
    return lines


def _first(services: Sequence[Service], *names: str) -> Setting:
    for name in names:
        for service in services:
            if service.variable(name):
                return Setting(service.variable(name), name)
    return Setting("", "")


def _line(key: str, setting: Setting) -> Line:
    return Line(key, setting.value, setting.why)


def _password(password: Setting, unneeded: bool, server: str, ask: Questions) -> Line:
    if not password and not unneeded:
        password = ask.text(f"The password of {server}", "")
    return _line("password", password)


def _required(text: str) -> str:
    match = _REQUIRED.search(text)
    return "" if match is None else match[1]


def _master(sentinels: Sequence[Service]) -> Setting:
    for service in sentinels:
        name = service.variable("REDIS_MASTER_SET", "REDIS_MASTER_NAME", "SENTINEL_MASTER_NAME")
        for text in (*service.words, *service.texts):
            match = _MONITOR.search(text)
            if match is not None and "$" not in match[1]:
                return Setting(match[1], f"`sentinel monitor` of {service.name}")
        if name:
            return Setting(name, f"a variable of {service.name}")
    return Setting("", "")


def http_operations(kind: Kind | None, ask: Questions) -> tuple[list[Line], list[Line]]:
    """Return the lines of `[operations]` and `[leader]` for an HTTP service."""
    if kind is CONSUL:
        read = {
            "request": "GET /v1/kv/{key}?consistent",
            "value": "0.Value",
            "decode": "base64",
            "nothing": 404,
        }
        return [Line("read", read), Line("write", "PUT /v1/kv/{key} {value}")], []

    request = ask.text("The request that reads a value", "GET /{key}", _no_request)
    path = ask.text("Where the value is in the JSON of that answer, such as data.value", "")
    nothing = ask.text(
        "The status of the answer if there is no value yet",
        "404",
        lambda text: "" if re.fullmatch(r"[1-5]\d\d", text) else "not a status of HTTP",
    )
    write = ask.text("The request that writes a value", "PUT /{key} {value}", _no_request)
    table: dict[str, Any] = {"request": request.value, "nothing": int(nothing.value)}
    table |= {"value": path.value} if path else {}
    reading = Line("read", table, request.why or path.why or nothing.why)
    probe = ask.text("The request that shows whether a node leads, if there is one", "")
    leader = []
    if probe:
        leads = ask.text('What must match in its answer, such as state == "leader"', "leader")
        leader = [_line("probe", probe), _line("leads", leads)]
    return [reading, _line("write", write)], leader


def _no_request(text: str) -> str:
    good = re.fullmatch(r"[A-Z]+ /\S*( .+)?", text)
    return "" if good else "write a method and a path, such as GET /kv/{key}"
