"""Deployments of masters with metastores, and helpers for both sides."""

import functools

from harness.ops import OpType
from tests.kudu.deploy import deploy as deploy_kudu

MORE = {"hms": True, "hms_poll_ms": 1000}


def deploy(body, *, hms=None, **given):
    """Like `tests.kudu.deploy.deploy`, with `--hms`."""
    more = {**MORE, **(hms or {})}
    return deploy_kudu(body, more=more, **given)


def on_hms(**given):
    """Decorate a test so that it runs on deployed masters and metastores."""

    def around(test):
        @functools.wraps(test)
        def run():
            async def body(kudu):
                await kudu.until_ready()
                await test(kudu)

            deploy(body, **given)

        del run.__wrapped__  # pytest would treat the test's arguments as fixtures
        return run

    return around


async def refused(kudu, client, f, **value):
    completion = await kudu.do(client, f, **value)
    assert completion.type is OpType.FAIL, completion
    seen = completion.value if isinstance(completion.value, dict) else {}
    return completion.error, seen.get("result")


async def entries(kudu):
    """Map each table name in the metastore to (table id, addresses of masters)."""
    found = await kudu.system._metastores.snapshot()
    return {name: (ident, masters) for name, ident, masters, _ in found["entries"]}


async def rest(kudu):
    """Wait until both catalogs are at rest and agree; return what they contain."""
    await kudu.until_converged()
    snapshot = await kudu.system.snapshot()
    leader = next(dump for dump in snapshot["masters"].values() if dump["ready"])
    tables = {t["name"]: t["id"] for t in leader["tables"] if t["state"] != "REMOVED"}
    assert {name: ident for name, (ident, _) in (await entries(kudu)).items()} == tables
    return tables
