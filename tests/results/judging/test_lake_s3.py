"""A report on a lake in a bucket that workers of this machine read and append to."""

import json

import pytest

from harness.cli import main
from harness.errors import InfrastructureError
from results.lake.log.location import Place
from results.lake.transfer.ingest_verb import main as ingest_verb
from results.report.report import report
from tests.results.judging.stores import plain_store
from tests.support.object_store import BUCKET, flaky_proxy, options_for, refused_by, s3_server

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.process]


def test_a_lake_in_a_bucket_is_reported_on_as_its_store_is(tmp_path, monkeypatch, capsys):
    store = plain_store(tmp_path / "store")
    uri = f"s3://{BUCKET}/team/lake"
    monkeypatch.chdir(tmp_path)

    def told(*arguments):
        code = main(["report", *arguments, "--json"])
        content = json.loads(capsys.readouterr().out)
        names = ("runs", "verdicts", "ops", "ok", "fail", "info", "exit_code")
        assert code == content["exit_code"]
        return {name: content[name] for name in names}, content

    with s3_server() as server, flaky_proxy(server, seed=5) as endpoint:
        for name, value in options_for(endpoint).items():
            monkeypatch.setenv(name, value)
        assert ingest_verb([str(store), "--lake", uri]) == 0
        capsys.readouterr()
        ours, first = told(uri, "--executor", "pool", "--jobs", "1")
        _, second = told(uri)
        assert refused_by(endpoint) > 0
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        place = Place(f"{uri}/results")
        for file in place.listed("verdicts"):
            with place.files.open_input_stream(f"verdicts/{file.name}") as whole:
                rows = whole.read()
            with place.files.open_output_stream(f"verdicts/{file.name}") as torn:
                torn.write(rows[:-400] + b"torn" * 100)
        with pytest.raises(InfrastructureError) as raised:
            report(uri, output=tmp_path / "torn")
        assert uri in str(raised.value)
        assert "\n" not in str(raised.value)
    theirs, _ = told(str(store), "--executor", "inline")
    assert ours == theirs
    assert first["results_new"] == second["results_known"] > 0
    assert second["results_new"] == 0
    assert [path.name for path in (tmp_path / "lake-report").glob("*.html")] == ["report.html"]
