"""A lake on an S3 server: the same as on disks, also where one request in ten gets a 503."""

import threading

import duckdb
import pytest

from harness.errors import InfrastructureError, UsageError
from results.lake.lake import Lake
from results.lake.trouble import Patience
from tests.object_store import BUCKET, flaky_proxy, free_port, options_for, refused_by, s3_server
from tests.results.lake.toy import SCHEMAS, contents, damage, lake_at, rows

pytestmark = [pytest.mark.lake, pytest.mark.s3, pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def endpoint():
    with s3_server() as found:
        yield found


def test_a_lake_in_a_bucket(endpoint):
    options = options_for(endpoint)
    uri = f"s3a://{BUCKET}/plain/lake"
    lake = lake_at(uri, storage_options=options)
    for run in ("r1", "r2", "r3"):
        lake.append(rows([run], label="a b/é%"))
    lake.append(rows(["r4"], label=None))
    assert lake.files("runs")[0].uri.startswith(f"s3://{BUCKET}/plain/lake/runs/b-")
    assert [item.files_after for item in lake.compact()] == [2, 2, 2]
    lake.vacuum(grace_hours=0)
    assert lake.check() == []
    assert contents(lake_at(uri, storage_options=options)) == {"r1", "r2", "r3", "r4"}


def test_an_environment_that_says_where_and_who(endpoint, monkeypatch):
    for name, value in options_for(endpoint).items():
        monkeypatch.setenv(name, value)
    lake = lake_at(f"s3://{BUCKET}/environment")
    lake.append(rows(["r1"]))
    assert contents(Lake.open_as_found(f"s3://{BUCKET}/environment", version=1)) == {"r1"}
    duck = duckdb.connect()
    duck.register("operations", lake.dataset("operations"))
    assert duck.execute("select count(distinct run) from operations").fetchone() == (1,)


def test_two_writers_and_a_compaction_at_a_server_that_is_busy(endpoint):
    uri = f"s3://{BUCKET}/busy"
    patience = Patience(wait_s_max=0.1)
    failures = []
    with flaky_proxy(endpoint, seed=3) as proxy:
        options = {**options_for(proxy), "retry_timeout": "20s"}
        lake_at(uri, storage_options=options)

        def write(name):
            try:
                lake = lake_at(uri, storage_options=options, patience=patience)
                for number in range(2):
                    lake.append(rows([f"{name}-{number}", f"{name}-{number}x"]))
            except BaseException as error:  # noqa: BLE001 - the test shows it
                failures.append(error)

        writers = [threading.Thread(target=write, args=(f"w{index}",)) for index in range(2)]
        for writer in writers:
            writer.start()
        lake = lake_at(uri, storage_options=options, patience=patience)
        while any(writer.is_alive() for writer in writers):
            lake.compact()
        for writer in writers:
            writer.join()
        lake.compact()
        assert failures == []
        assert refused_by(proxy) >= 5
    lake = lake_at(uri, storage_options=options_for(endpoint))
    assert contents(lake) == {
        f"w{index}-{number}{end}" for index in range(2) for number in range(2) for end in ("", "x")
    }
    assert damage(lake) == []


def opened(uri, options, **patience):
    Lake.create_or_open(
        uri, schemas=SCHEMAS, version=1, storage_options=options,
        patience=Patience(sleep=lambda _: None, **patience),
    )  # fmt: skip


def test_trouble_is_one_clear_line(endpoint):
    options = options_for(endpoint)
    with pytest.raises(UsageError, match="no bucket") as refused:
        opened("s3://nowhere/lake", options)
    assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="AWS_ALLOW_HTTP=true"):
        opened(f"s3://{BUCKET}/x", {**options, "AWS_ALLOW_HTTP": "false"})
    nobody = {**options_for(f"http://127.0.0.1:{free_port()}"), "max_retries": "0"}
    with pytest.raises(InfrastructureError, match="after 2 tries") as refused:
        opened(f"s3://{BUCKET}/x", nobody, attempts_max=2)
    assert "\n" not in str(refused.value)
