"""A lake on an S3 server behaves as on a disk, even if one request in ten gets a 503."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from harness.cli import main
from harness.errors import InfrastructureError, UsageError
from results.lake.log.lake import Lake
from results.lake.log.location import Place
from results.lake.log.storage_errors import AgainError, Patience
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from results.lake.upkeep.vacuum import vacuum
from tests.results.lake.toy import SCHEMAS, contents, created_at_once, damage, lake_at, rows
from tests.support.object_store import (
    BUCKET,
    flaky_proxy,
    free_port,
    options_for,
    refuse_from_now,
    refused_by,
    s3_server,
)

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
    assert [item.files_after for item in compact(lake)] == [2, 2, 2]
    vacuum(lake, grace_hours=0)
    assert check(lake) == []
    assert contents(lake_at(uri, storage_options=options)) == {"r1", "r2", "r3", "r4"}


def test_an_environment_that_says_where_and_who(endpoint, monkeypatch):
    for name, value in options_for(endpoint).items():
        monkeypatch.setenv(name, value)
    lake = lake_at(f"s3://{BUCKET}/environment")
    lake.append(rows(["r1"]))
    assert contents(lake_at(f"s3://{BUCKET}/environment")) == {"r1"}
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
            compact(lake)
        for writer in writers:
            writer.join()
        compact(lake)
        assert failures == []
        assert refused_by(proxy) >= 5
    lake = lake_at(uri, storage_options=options_for(endpoint))
    assert contents(lake) == {
        f"w{index}-{number}{end}" for index in range(2) for number in range(2) for end in ("", "x")
    }
    assert damage(lake) == []


def test_a_server_that_was_busy_for_long_is_still_asked_again(endpoint):
    with flaky_proxy(endpoint, seed=3) as proxy:
        files = Place(f"s3://{BUCKET}/long", options_for(proxy)).files

        def refused(_):
            with pytest.raises(OSError, match="503"):
                files.get_file_info("x")

        refuse_from_now(proxy, 1.0)
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(refused, range(32)))
        # the library's own limit of 100 tries per process would end the tries earlier
        assert refused_by(proxy) > 200
        refuse_from_now(proxy, 0.3)
        for _ in range(50):
            files.get_file_info("x")


def test_errors_while_reading_fences_are_retried(endpoint):
    with flaky_proxy(endpoint, chance=0.0) as proxy:
        lake = lake_at(
            f"s3://{BUCKET}/fences", storage_options={**options_for(proxy), "max_retries": "0"}
        )
        assert not lake.main.fenced("x")
        refuse_from_now(proxy, 1.0)
        with pytest.raises(AgainError):
            lake.main.fenced("x")


def opened(uri, options, **patience):
    Lake.open(
        uri, schemas=SCHEMAS, version=1, storage_options=options,
        patience=Patience(sleep=lambda _: None, **patience), create=True)  # fmt: skip


def test_trouble_is_one_clear_line(endpoint):
    options = options_for(endpoint)
    with pytest.raises(UsageError, match="the bucket of") as refused:
        opened("s3://nowhere/lake", options)
    assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="AWS_ALLOW_HTTP=true"):
        opened(f"s3://{BUCKET}/x", {**options, "AWS_ALLOW_HTTP": "false"})
    nobody = {**options_for(f"http://127.0.0.1:{free_port()}"), "max_retries": "0"}
    with pytest.raises(InfrastructureError, match="after 2 tries") as refused:
        opened(f"s3://{BUCKET}/x", nobody, attempts_max=2)
    assert "is AWS_ENDPOINT_URL right?" in str(refused.value)
    assert "\n" not in str(refused.value)


REFUSALS = ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"]


@pytest.mark.parametrize("code", REFUSALS)
def test_wrong_credentials_are_reported_at_once(endpoint, code, monkeypatch, tmp_path, capsys):
    with flaky_proxy(endpoint, chance=1.0, code=code) as proxy:
        options = options_for(proxy)
        for opening in (
            lambda uri: opened(uri, options),
            lambda uri: Lake.open(uri, schemas=SCHEMAS, version=1, storage_options=options),
        ):
            with pytest.raises(UsageError, match="check the credentials") as refused:
                opening(f"s3://{BUCKET}/x")
            assert "\n" not in str(refused.value)
        for name, value in options.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "store").mkdir()
        assert main(["ingest", str(tmp_path / "store"), "--lake", f"s3://{BUCKET}/x"]) == 254
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert refused_by(proxy) <= 20


def test_credentials_that_expire_lose_nothing(endpoint):
    uri = f"s3://{BUCKET}/expires"
    with flaky_proxy(endpoint, chance=0.0, code="ExpiredToken") as proxy:
        lake = lake_at(uri, storage_options=options_for(proxy))
        lake.append(rows(["r1"]))
        refuse_from_now(proxy, 1.0)
        for refused in (
            lambda: lake.append(rows(["r2"])),
            *(functools.partial(upkeep, lake) for upkeep in (compact, vacuum, check)),
        ):
            with pytest.raises(UsageError, match="check the credentials"):
                refused()
        assert refused_by(proxy) <= 60
        refuse_from_now(proxy, 0.0)
        lake.append(rows(["r2"]))
        assert contents(lake) == {"r1", "r2"}
        vacuum(lake, grace_hours=0)
        vacuum(lake, grace_hours=0)
        assert check(lake) == []


def test_two_creations_at_once(endpoint):
    options = options_for(endpoint)
    created_at_once(f"s3://{BUCKET}/created", ["r0", "r1", "r2"], storage_options=options)


def test_a_foreign_object_in_the_place_is_refused_and_untouched(endpoint):
    uri, options = f"s3://{BUCKET}/foreign", options_for(endpoint)
    place = Place(uri, options)
    for name in ("thesis.tex", "runs/part-0.parquet"):
        with place.files.open_output_stream(name) as file:
            file.write(b"somebody's")
        with pytest.raises(UsageError, match="name an empty place"):
            opened(uri, options)
        place.files.delete_file(name)
    lake = lake_at(uri, storage_options=options)
    lake.append(rows(["r1"]))
    assert contents(lake) == {"r1"}
