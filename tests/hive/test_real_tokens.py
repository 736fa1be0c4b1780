"""Delegation tokens of real metastores with a KDC, and the text form of tokens."""

import asyncio
import base64
import contextlib
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from harness.errors import UsageError
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from targets.apache_hive import ApacheHiveTarget
from targets.apache_hive.kdc import METASTORE, PASSWORD, keytab, principal
from targets.apache_hive.tokens import Token, read_hadoop, read_text
from targets.hive import api
from targets.hive.channel import ChannelError
from tests.hive.deploy import Deployed, deploy
from workloads.hms_tokens import FORGED, RENEWER, STRANGER

REAL = [pytest.mark.slow, pytest.mark.hive, pytest.mark.kdc, pytest.mark.xdist_group("hive")]
PROCESS = [*REAL, pytest.mark.process, pytest.mark.postgres]


@pytest.mark.parametrize(
    ("store", "environment"),
    [
        pytest.param("memory", "process", marks=PROCESS),
        pytest.param("db", "process", marks=PROCESS),
        pytest.param(
            *("zookeeper", "process"),
            marks=[*PROCESS, pytest.mark.zookeeper, pytest.mark.nightly],
        ),
        pytest.param("zookeeper", "docker", marks=[*REAL, pytest.mark.docker]),
    ],
)
def test_a_token_is_valid_elsewhere_only_with_a_shared_store(store, environment):
    async def body(hms: Deployed):
        client = hms.new_client()

        async def verify(token, metastore):
            return await hms.ok(client, "verify", token=token, metastore=metastore)

        token = (await hms.ok(client, "issue", owner="alice", renewer=RENEWER))["token"]
        issuer = int(client._address.node[-1]) - 1
        refused, good = {"result": "invalid-token"}, {"result": "ok", "owner": "alice"}
        assert await verify(token, issuer) == good
        assert await verify(token, issuer + 1) == (refused if store == "memory" else good)
        forged = token[:-1] + ("1" if token[-1] == "0" else "0")
        assert await verify(forged, issuer) == refused
        assert await verify(FORGED, issuer) == refused
        assert await hms.refused(client, "renew", token=token, user=STRANGER) == "access-control"
        await hms.ok(client, "renew", token=token, user=RENEWER)
        assert await verify(token, issuer) == good
        await hms.ok(client, "cancel", token=token)
        assert await verify(token, issuer) == refused
        again = await hms.refused(client, "renew", token=token, user=RENEWER)
        assert again == "invalid-token"

    deploy(
        body,
        environment=environment,
        target=ApacheHiveTarget(),
        kdc=True,
        token_store=store,
        selection="sequential",
    )


@pytest.mark.parametrize("size", [0, 1, 127, 128, 255, 256, 70_000])
def test_a_token_is_read_as_it_is_written(size):
    token = Token(b"\x00\x05alice" + b"x" * size, b"p" * size)
    assert read_hadoop(token.hadoop) == token == read_text(token.text)
    assert token.owner == "alice"


@pytest.mark.parametrize("text", ["", "BQ", "BWFsaQ"])
def test_truncated_tokens_are_refused(text):
    with pytest.raises(ValueError, match="token"):
        read_hadoop(text)


@pytest.mark.hive
def test_tokens_without_a_kdc_are_refused():
    target = ApacheHiveTarget()
    given = with_defaults("target", target.name, target.options, {"token_store": "db"})
    settings = TargetSettings(profile="strict", bugs=(), options=given, environment="process")
    with pytest.raises(UsageError, match="--kdc"):
        target.nodes(settings)


@pytest.mark.kdc
def test_the_keytab_is_that_of_the_password(tmp_path):
    path = tmp_path / "keytab"
    path.write_bytes(base64.b64decode(keytab()))
    ktutil = shutil.which("ktutil", path="/usr/bin:/bin")
    keys = "aes256-cts-hmac-sha1-96"
    completed = subprocess.run(
        [ktutil],
        input=f"addent -password -p {principal(METASTORE)} -k 1 -e {keys}\n{PASSWORD}\n"
        f"rkt {path}\nwkt {tmp_path / 'both'}\n",
        text=True,
        capture_output=True,
        check=True,
        env={"KRB5_CONFIG": "/dev/null"},
    )
    both = (tmp_path / "both").read_bytes()
    size = len(path.read_bytes()) - 2
    assert len(both) == 2 + 2 * size, completed
    one, other = both[2 : 2 + size], both[2 + size :]
    at = 36  # the offset of the time of issue in the encoded token
    assert one[:at] + one[at + 4 :] == other[:at] + other[at + 4 :]


@pytest.mark.kdc
@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (b"DIGEST-MD5: IO error acquiring password", api.INVALID_TOKEN),
        (b"DIGEST-MD5: digest response format violation. Mismatched response.", api.INVALID_TOKEN),
        (b"DIGEST-MD5: Cannot perform callback to acquire password", None),
        (b"Unsupported mechanism type DIGEST-MD5", None),
        (None, None),
    ],
)
def test_only_errors_about_the_token_are_verdicts(said, verdict):
    from targets.apache_hive.sasl import KerberosDoor

    async def serve(reader, writer):
        await reader.readexactly(5 + len(b"DIGEST-MD5"))
        if said is not None:
            writer.write(b"\x03" + len(said).to_bytes(4) + said)
            await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        place = server.sockets[0].getsockname()
        door = KerberosDoor(SimpleNamespace(endpoint=lambda address: place))
        async with server:
            with contextlib.suppress(ChannelError):
                reply = await door.authenticate(("hms1", 9083), "00:00", 5.0)
                return reply.error
        return None

    assert asyncio.run(main()) == verdict
