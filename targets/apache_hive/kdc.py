"""The node `kdc`: an MIT Kerberos server, and the configuration that its clients need.

All passwords are fixed, and Kerberos derives keys from passwords. The metastores' keytab can
therefore be computed before the KDC runs, and no file has to be copied between nodes. Each node has
its own Kerberos configuration (`KRB5_CONFIG`), and the machine's configuration is ignored. All
Kerberos traffic uses TCP, so that link faults affect it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final

from harness.cluster import NodeSpec, ReadyPort

KDC_NODE: Final = "kdc"
KDC_PORT: Final = 88
METASTORE: Final = "hive/metastore"
"""The Kerberos principal of all metastores, as `name/host`. Hadoop does not resolve the host."""
PASSWORD: Final = "harness"  # noqa: S105 - protects no data
IMAGE: Final = "{package:targets.apache_hive}/apache_hive/kerberos"
_REALM: Final = "HARNESS"
_KEYS: Final = "aes256-cts-hmac-sha1-96"
_KEY_TYPE: Final = 18
_KEY: Final = bytes.fromhex("d1c780439a129af0862204651f171b80d1046e92b70e0dddda0d64e47d69928e")
"""The key that `ktutil` derives from `PASSWORD` for `METASTORE` in this realm (RFC 3962)."""
_VERSION: Final = 1
"""The version of all keys. It is the first, because no password was ever changed."""
_PATH: Final = "/usr/sbin:/sbin:/usr/bin:/bin"
_SERVER: Final = f"""
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = {{host}}:{{port:{KDC_PORT}}}
[realms]
  {_REALM} = {{
    database_name = {{data}}/principals
    key_stash_file = {{data}}/stash
    master_key_type = {_KEYS}
    supported_enctypes = {_KEYS}:normal
  }}
[logging]
  kdc = STDERR
"""


def principal(name: str) -> str:
    """Return the full name of a principal, with its realm."""
    return f"{name}@{_REALM}"


def configuration(kdc: str) -> str:
    """Return the text of a `krb5.conf`; `kdc` is the address of the KDC, as `host:port`."""
    return f"""
[libdefaults]
  default_realm = {_REALM}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  permitted_enctypes = {_KEYS}
  default_tkt_enctypes = {_KEYS}
  default_tgs_enctypes = {_KEYS}
[realms]
  {_REALM} = {{
    kdc = {kdc}
  }}
"""


def kdc_node(users: Iterable[str]) -> NodeSpec:
    """Declare the KDC's node, with principals for the metastores and for `users`."""
    names = [METASTORE, *users]
    added = [("kadmin.local", "-q", f"addprinc -pw {PASSWORD} {principal(name)}") for name in names]
    return NodeSpec(
        name=KDC_NODE,
        role="kdc",
        ports=(KDC_PORT,),
        dockerfile=IMAGE,
        environment={
            "KRB5_CONFIG": "{files}/krb5.conf",
            "KRB5_KDC_PROFILE": "{files}/kdc.conf",
            "PATH": _PATH,
        },
        files={
            "kdc.conf": _SERVER,
            "krb5.conf": configuration(f"{{host}}:{{port:{KDC_PORT}}}"),
        },
        setup=(("kdb5_util", "create", "-s", "-r", _REALM, "-P", PASSWORD), *added),
        command=("krb5kdc", "-n", "-r", _REALM, "-P", "{data}/pid"),
        ready=ReadyPort(KDC_PORT),
        debian_package="krb5-kdc",
    )


def keytab() -> str:
    """Return the metastores' keytab (MIT's format, version 2) in base64, as files must be text."""

    def counted(text: str) -> bytes:
        return len(text).to_bytes(2) + text.encode()

    names = METASTORE.split("/")
    entry = b"".join(
        [
            len(names).to_bytes(2),
            counted(_REALM),
            *map(counted, names),
            (1).to_bytes(4),  # type of the name: a principal
            (0).to_bytes(4),  # time of writing: 1970
            bytes([_VERSION]),
            _KEY_TYPE.to_bytes(2),
            len(_KEY).to_bytes(2),
            _KEY,
            _VERSION.to_bytes(4),
        ]
    )
    return base64.b64encode(b"\x05\x02" + len(entry).to_bytes(4) + entry).decode()
