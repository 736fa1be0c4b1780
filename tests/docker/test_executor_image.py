"""The image of Spark's executors, its entry point, and the manifests that use it."""

import io
import os
import subprocess
import tarfile
from importlib.metadata import Distribution
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

from harness.cli.soak.options import parse_soak
from harness.environments.docker.image.executor import image
from harness.support import distributions as installed
from results.report import verb as report_verb

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "harness/environments/docker/image/executor/entrypoint.sh"
MANIFESTS = sorted((ROOT / "docs/kubernetes").glob("*.yaml"))
SPARK_ON_KUBERNETES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "report-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
"""The environment that Spark gives an executor's pod (Spark 4: `BasicExecutorFeatureStep`)."""


class Written(Distribution):
    """A distribution that exists only in this test."""

    def __init__(self, name, *needs):
        lines = [f"Name: {name}", "Version: 1.5", *(f"Requires-Dist: {need}" for need in needs)]
        self._texts = {"METADATA": "\n".join(lines)}

    def read_text(self, filename):
        return self._texts.get(filename)

    def locate_file(self, path):
        raise AssertionError(path)


def test_requirements_are_pinned_to_installed_versions():
    written = Written(
        installed.OWN, "msgspec>=0.1", "numpy[x]>=1; extra == 'spark'", "docker; extra == 'docker'"
    )
    other = Written("plug-in", "catalog_harness>=0.1", "not.here (>=2,<3)", "odd; os_name == 'x'")
    assert list(image._requirements([written, other])) == [
        f"msgspec=={msgspec.__version__}",
        f"numpy[x]=={np.__version__}",
        "not.here(>=2,<3)",
    ]


@pytest.mark.lake
def test_the_extras_for_executors_and_drivers_are_wanted():
    pytest.importorskip("pyspark")
    wanted = image._requirements(installed.plugin_distributions())
    names = {requirement.partition("==")[0] for requirement in wanted}
    assert {"pyarrow", "deltalake", "pyspark[connect]", "duckdb", "pandas"} <= names
    assert "docker" not in names


def test_all_that_is_installed_here_is_in_the_image():
    distributions = installed.plugin_distributions()
    with tarfile.open(fileobj=io.BytesIO(image._above(distributions))) as tar:
        names = set(tar.getnames())
    assert {"Dockerfile", "app/harness/ops.py", "app/results/questions/sql/judged.sql"} <= names
    assert "app/toy_register.py" in names or any(
        name.startswith("app/toy_register/") for name in names
    )
    points = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
    assert len(points) == len(distributions) > 1
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_other_code_is_another_image(tmp_path, monkeypatch):
    (tmp_path / "plugged.py").write_text("one")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(image, "plugin_distributions", lambda: [Written("plugged")])
    monkeypatch.setattr(image, "packages_of", lambda _: ["plugged"])
    tag = image.executor_tag()
    assert image.executor_tag() == tag
    (tmp_path / "plugged.py").write_text("two")
    assert image.executor_tag() != tag
    assert image.executor_tag().startswith("harness-executor:")


# --- the entry point ------------------------------------------------------------------------------


@pytest.fixture
def entered(tmp_path):
    """Return a function that runs the entry point and returns the command that it builds."""
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\nshift 2\nprintf "%s\\n" "$@"\n')
    tini.chmod(0o755)

    def enter(*words, **variables):
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", str(ENTRY), *words],
            env={"PATH": path, "SPARK_HOME": "/spark", **variables},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return enter


def test_a_kubernetes_executor_gets_all_settings_of_spark(entered):
    options = {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=e", "SPARK_CLASSPATH": "/x"}
    command = entered("executor", **SPARK_ON_KUBERNETES, **options)
    assert command[:5] == ["java", "-Da=b c", "-Dd=e", "-Xms1024m", "-Xmx1024m"]
    assert command[command.index("-cp") + 1] == "/spark/conf:/x:/spark/jars/*:"
    main = command.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert dict(zip(command[main + 1 :: 2], command[main + 2 :: 2], strict=True)) == {
        "--driver-url": SPARK_ON_KUBERNETES["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "report-exec-3",
    }
    assert entered("executor", **SPARK_ON_KUBERNETES)[:2] == ["java", "-Xms1024m"]


def test_the_other_roles(entered):
    command = entered("driver", "--class", "C", "a b", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert command == [
        *("spark-submit", "--deploy-mode", "client", "--conf"),
        *("spark.driver.bindAddress=10.0.0.1", "--class", "C", "a b"),
    ]
    assert entered("master")[:2] == ["spark-class", "org.apache.spark.deploy.master.Master"]
    worker = entered("worker", "--cores", "2", "spark://m:7077")
    assert worker[1:] == [
        *("org.apache.spark.deploy.worker.Worker", "--work-dir", "/work"),
        *("--cores", "2", "spark://m:7077"),
    ]
    assert entered("connect", "--master", "x")[-3:] == ["--master", "x", "spark-internal"]
    assert entered("harness", "report", "a b") == ["harness", "report", "a b"]


# --- the manifests --------------------------------------------------------------------------------


def pods_of(documents):
    """Map the name of each object that creates pods to the pods' specification."""
    return {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for document in documents
        if document["kind"] in {"Job", "Deployment"}
    }


def containers_of(documents):
    return [each for pod in pods_of(documents).values() for each in pod["containers"]]


def defaults_of(documents):
    texts = [
        document["data"]["spark-defaults.conf"]
        for document in documents
        if document["kind"] == "ConfigMap"
    ]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
    return dict(line.split(maxsplit=1) for line in lines)


@pytest.fixture(params=MANIFESTS, ids=lambda path: path.stem)
def documents(request):
    return list(yaml.safe_load_all(request.param.read_text()))


def test_manifests_are_of_this_image_and_of_commands_that_exist(documents, entered):
    for document in documents:
        assert document["apiVersion"]
        assert document["metadata"]["name"]
    images = {each["image"] for each in containers_of(documents)}
    settings = defaults_of(documents)
    images |= {value for name, value in settings.items() if name.endswith("container.image")}
    assert {name.rpartition("/")[2] for name in images} == {image.NEWEST_EXECUTOR}
    assert len(images) == 1, "driver and executors must use one image"
    arguments = [each["args"] for each in containers_of(documents)]
    for words in arguments:
        assert all(isinstance(word, str) for word in words)
        if words[0] != "harness":
            assert entered(*words)[0] == "spark-class", words
    (job,) = [words for words in arguments if words[0] == "harness"]
    parse = {"report": report_verb._parse, "soak": parse_soak}[job[1]]
    parsed = parse(job[2:])
    assert "s3://team/lake" in {getattr(parsed, "lake", None), getattr(parsed, "path", None)}


def test_manifests_name_what_they_define(documents):
    secrets = {
        document["metadata"]["name"]: document["stringData"]
        for document in documents
        if document["kind"] == "Secret"
    }
    named = {
        (each["valueFrom"]["secretKeyRef"]["name"], each["valueFrom"]["secretKeyRef"]["key"])
        for container in containers_of(documents)
        for each in container.get("env", ())
        if "secretKeyRef" in each.get("valueFrom", {})
    }
    settings = defaults_of(documents)
    refs = {name: value for name, value in settings.items() if ".secretKeyRef." in name}
    named |= {tuple(value.split(":")) for value in refs.values()}
    assert named == {(name, key) for name, keys in secrets.items() for key in keys}
    for name, pod in pods_of(documents).items():
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        mounts = {
            document["name"]
            for each in pod["containers"]
            for document in each.get("volumeMounts", ())
        }
        assert mounts == volumes, name
    services = {
        document["metadata"]["name"] for document in documents if document["kind"] == "Service"
    }
    words = [word for each in containers_of(documents) for word in each["args"]]
    hosts = {word.split("/")[2].split(":")[0] for word in words if word.startswith("spark://")}
    assert hosts == services
    for host in hosts:
        # the address at which the entry point listens
        assert pods_of(documents)[host]["hostname"] == host
        # Kubernetes would set SPARK_MASTER_PORT to an address, which Spark takes for a number.
        assert all(not pod["enableServiceLinks"] for pod in pods_of(documents).values())


def test_drivers_and_executors_know_the_object_store(documents):
    (driver,) = [each for each in containers_of(documents) if each["args"][0] == "harness"]
    names = {each["name"] for each in driver["env"]}
    variables = {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert names >= {*variables, "SPARK_LOCAL_IP"}
    settings = defaults_of(documents)
    used = {name.rpartition(".")[2] for name in settings if "AWS_" in name}
    assert used == (variables if settings else set())
    if settings:
        cores = int(settings["spark.executor.instances"]) * int(settings["spark.executor.cores"])
        assert int(settings["spark.default.parallelism"]) == cores
