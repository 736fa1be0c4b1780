"""Delegation tokens of real metastores with a KDC, and how tokens are written."""

import pytest

from harness.errors import UsageError
from harness.options import with_defaults
from harness.plugins import TargetSettings
from targets.apache_hive import ApacheHiveTarget
from targets.apache_hive.tokens import Token, read_hadoop, read_text
from tests.hive.deploy import Deployed, deploy
from workloads.hms_tokens import FORGED, RENEWER, STRANGER

REAL = [
    *(pytest.mark.slow, pytest.mark.hive, pytest.mark.kdc, pytest.mark.process),
    *(pytest.mark.postgres, pytest.mark.xdist_group("hive")),
]


@pytest.mark.parametrize("store", [pytest.param(store, marks=REAL) for store in ("memory", "db")])
def test_a_token_is_good_elsewhere_only_where_the_store_is_shared(store):
    async def body(hms: Deployed):
        client = hms.new_client()

        async def verify(token, metastore):
            return await hms.ok(client, "verify", token=token, metastore=metastore)

        token = (await hms.ok(client, "issue", owner="alice", renewer=RENEWER))["token"]
        issuer = int(client._address.node[-1]) - 1
        refused, good = {"result": "invalid-token"}, {"result": "ok", "owner": "alice"}
        assert await verify(token, issuer) == good
        assert await verify(token, issuer + 1) == (good if store == "db" else refused)
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
        environment="process",
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
def test_what_ends_in_the_middle_is_no_token(text):
    with pytest.raises(ValueError, match="token"):
        read_hadoop(text)


@pytest.mark.hive
@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ("process", {"token_store": "db"}),
        ("process", {"token_store": "zookeeper", "kdc": True}),
        ("docker", {"kdc": True}),
    ],
)
def test_what_is_not_there_is_refused(environment, options):
    target = ApacheHiveTarget()
    given = with_defaults("target", target.name, target.options, options)
    settings = TargetSettings(profile="strict", bugs=(), options=given, environment=environment)
    with pytest.raises(UsageError):
        target.nodes(settings)
