"""Tools that some tests need. If a tool is missing, its tests are skipped with the reason, or fail
if CI demands the tool (HARNESS_REQUIRE_DOCKER=1, and likewise SPARK, BROWSER, ETCD, FAKETIME, LAKE,
S3, FUSE, POSTGRES, REDIS, ZOOKEEPER, HIVE, KUDU and KUDUCLIENT). A test's marks name its tools.
"""

import functools
import gc
import importlib.util
import shutil
import warnings
from pathlib import Path

from harness.environments.docker import DockerEnvironment
from harness.environments.fuse.available import why_missing
from harness.environments.host.faketime import find_library
from harness.errors import HarnessError, UsageError
from harness.support.java import check_java
from results.spark.diagnosis import SparkAndJava
from targets.apache_hive.artefacts import HIVE4
from targets.apache_kudu import fetching as kudu
from targets.apache_kudu.javaclient import fetching as kudu_client
from targets.hive.sql.postgres import require_driver
from targets.hive.sql.server import SEARCH_PATH
from targets.hive.zookeeper.ensemble import JAR
from targets.hive.zookeeper.kazoo import require_kazoo
from tests.support.browser import find_chromium


@functools.cache
def missing_docker():
    """Return why no container can be started, or `None`; build a missing node image."""
    environment = DockerEnvironment()
    with warnings.catch_warnings():
        # If no engine answers, Docker's SDK leaves its socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        environment.prepare(print)
        reason = environment.unavailable()
        gc.collect()
    return reason


@functools.cache
def missing_spark():
    there, detail = SparkAndJava().look()
    return None if there else detail


@functools.cache
def missing_browser():
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    fix = "apt-get install chromium-headless-shell"
    return None if find_chromium() else f"there is no Chromium; {fix}"


@functools.cache
def missing_fuse():
    return why_missing()


def missing_lake():
    there = all(importlib.util.find_spec(name) for name in ("deltalake", "tenacity"))
    return None if there else "there is no deltalake; pip install 'catalog-harness[report]'"


def missing_s3():
    there = all(importlib.util.find_spec(name) for name in ("moto", "flask", "flask_cors"))
    return None if there else "there is no moto; pip install 'moto[s3]' flask flask-cors"


def missing_etcd():
    return None if shutil.which("etcd") else "there is no etcd; apt-get install etcd-server"


def missing_postgres():
    try:
        require_driver()
    except UsageError as error:
        return str(error)
    found = shutil.which("postgres", path=SEARCH_PATH)
    return None if found else "there is no PostgreSQL; apt-get install postgresql"


def missing_redis():
    there = shutil.which("redis-server")
    return None if there else "there is no Redis; apt-get install redis-server"


def missing_zookeeper():
    try:
        require_kazoo()
    except UsageError as error:
        return str(error)
    there = Path(JAR).exists() and shutil.which("java")
    return None if there else "there is no ZooKeeper; apt-get install zookeeper"


def missing_hive():
    try:
        check_java("Hive")
        HIVE4.require()
    except HarnessError as error:
        return str(error)
    there = all(importlib.util.find_spec(name) for name in ("pymetastore", "thrift"))
    return None if there else "there is no pymetastore; pip install 'catalog-harness[hive]'"


def missing_kudu():
    try:
        kudu.require_libraries(kudu.require(kudu.VERSIONS[0]))
    except HarnessError as error:
        return str(error)
    return None


def missing_kudu_client():
    try:
        kudu_client.require()
    except HarnessError as error:
        return str(error)
    return None


def missing_kdc():
    programs = ("krb5kdc", "kadmin.local", "kdb5_util", "ktutil")
    if not all(shutil.which(each, path="/usr/sbin:/sbin:/usr/bin:/bin") for each in programs):
        return "there is no KDC; apt-get install krb5-kdc krb5-admin-server krb5-user"
    there = importlib.util.find_spec("gssapi")
    return None if there else "there is no gssapi; pip install 'catalog-harness[kerberos]'"


def missing_faketime():
    return None if find_library() else "there is no libfaketime; apt-get install libfaketime"


NEEDS = {
    "docker": ("HARNESS_REQUIRE_DOCKER", missing_docker),
    "spark": ("HARNESS_REQUIRE_SPARK", missing_spark),
    "faketime": ("HARNESS_REQUIRE_FAKETIME", missing_faketime),
    "postgres": ("HARNESS_REQUIRE_POSTGRES", missing_postgres),
    "redis": ("HARNESS_REQUIRE_REDIS", missing_redis),
    "zookeeper": ("HARNESS_REQUIRE_ZOOKEEPER", missing_zookeeper),
    "hive": ("HARNESS_REQUIRE_HIVE", missing_hive),
    "kudu": ("HARNESS_REQUIRE_KUDU", missing_kudu),
    "kuduclient": ("HARNESS_REQUIRE_KUDUCLIENT", missing_kudu_client),
    "kdc": ("HARNESS_REQUIRE_KDC", missing_kdc),
    "etcd": ("HARNESS_REQUIRE_ETCD", missing_etcd),
    "browser": ("HARNESS_REQUIRE_BROWSER", missing_browser),
    "lake": ("HARNESS_REQUIRE_LAKE", missing_lake),
    "s3": ("HARNESS_REQUIRE_S3", missing_s3),
    "fuse": ("HARNESS_REQUIRE_FUSE", missing_fuse),
}


def refusal(mark, environ):
    """Return what a test with this mark lacks, and whether CI demands it; `None` if nothing."""
    variable, look = NEEDS[mark]
    reason = look()
    if reason is None:
        return None
    demanded = environ.get(variable) == "1"
    return demanded, f"{variable}=1, but {reason}" if demanded else reason
