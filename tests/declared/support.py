"""Builds declarations (`system.toml`) of a small HTTP service for tests."""

from harness.errors import UsageError
from targets.declared import DeclaredTarget

NODES = """\
[nodes]
count = 3
command = "server --port {port:8080} --peers {address:n1:9000}"
"""
CLIENT = """\
[client]
protocol = "http"
port = 8080
"""
OPERATIONS = """\
[operations]
read = { request = "GET /register", value = "value", nothing = [404] }
write = { request = "PUT /register", body = '{"value": {value}}' }
cas = { request = "POST /cas", body = '{"old": {old}, "new": {new}}', refused = [409] }
"""


def declaration(*, top="", nodes=NODES, client=CLIENT, operations=OPERATIONS, more=""):
    return "\n".join(part for part in (top, nodes, client, operations, more) if part)


def written(folder, text, **files):
    """Write `system.toml` and other files (`__` in a name is a dot); return the path."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    path = folder / "system.toml"
    path.write_text(text)
    return path


def kept(folder, text, **files):
    """Return the target options for this declaration, as `--system` builds them."""
    return DeclaredTarget().read_file(written(folder, text, **files))


def refused(folder, text, **files):
    try:
        kept(folder, text, **files)
    except UsageError as error:
        return str(error)
    return ""
