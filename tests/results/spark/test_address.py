"""A missing Spark master is reported at once, with its address."""

import shutil
import socket

import pytest

from harness.errors import InfrastructureError, UsageError
from results.spark import address as spark_address
from results.spark import session as spark
from results.spark import soak as soak_spark
from results.spark.address import addresses_of, check_reachable
from tests.results.spark.test_session import Workers


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("local[2]", []),
        ("local-cluster[2,1,1024]", []),
        ("yarn", []),
        ("k8s://https://host:6443", []),
        ("spark://host:7077", [("host", 7077)]),
        ("spark://a:1,b:2", [("a", 1), ("b", 2)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("sc://host", [("host", 15002)]),
        ("sc://host:1/;token=a,b;use_ssl=true", [("host", 1)]),
    ],
)
def test_addresses(url, found):
    assert addresses_of(url) == found


@pytest.mark.parametrize(
    "url", ["spark://host", "spark://:1", "spark://a:1,", "spark://h:x", "sc://", "sc://h:99999"]
)
def test_addresses_that_cannot_be_are_refused(url):
    with pytest.raises(UsageError, match=r"write spark://host:port or sc://host:port"):
        addresses_of(url)
    with pytest.raises(UsageError, match="at most 16 masters"):
        addresses_of("spark://" + ",".join(["h:1"] * 17))


@pytest.fixture
def ports(monkeypatch):
    """Return a port with a listener and one without; unset all proxies."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.socket() as listening, socket.socket() as bound:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        # bound, so that no other program takes the port, but without a listener
        bound.bind(("127.0.0.1", 0))
        yield listening.getsockname()[1], bound.getsockname()[1]


def test_a_port_without_a_listener_refuses(ports):
    pytest.importorskip("pyspark")
    there, gone = ports
    check_reachable(f"sc://127.0.0.1:{there}")
    check_reachable(f"spark://127.0.0.1:{gone},127.0.0.1:{there}")
    check_reachable("local[2]")
    for url in (f"sc://127.0.0.1:{gone}/;user_id=x", f"spark://127.0.0.1:{gone}"):
        # The user gets the error at once; Spark is not started, since it would retry for minutes.
        with pytest.raises(InfrastructureError) as caught:
            spark.get_spark(url)
        assert repr(url) in str(caught.value)
        assert f"(127.0.0.1:{gone}: Connection refused)" in str(caught.value)


def test_a_host_that_says_nothing_is_not_waited_for(monkeypatch):
    def never(address, *, timeout):
        assert timeout == spark_address.CONNECT_TIMEOUT_S
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    with pytest.raises(InfrastructureError, match=r"\(h:1: no answer within 5 s; i:2: no answer"):
        check_reachable("spark://h:1,i:2")


def test_addresses_behind_a_proxy_are_not_probed(ports, monkeypatch):
    _, gone = ports
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    check_reachable(f"sc://127.0.0.1:{gone}")
    with pytest.raises(InfrastructureError):  # the proxy serves only gRPC
        check_reachable(f"spark://127.0.0.1:{gone}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(InfrastructureError):
        check_reachable(f"sc://127.0.0.1:{gone}")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "RuntimeError"),
        ("one\ntwo", "one"),
        ("An error occurred while calling None.S.\n: o.a.s.SparkException: gone\n\tat x", "o.a."),
        ("An error occurred while calling o1.\n: j.E\nPy\n  ValueError: bad\n at", "ValueError: "),
        ("org.apache.X: awaitResult:\n\tat x\nCaused by: y.Z: no room\n\tat q", "y.Z: no room"),
        ("o.E: a\nharness.errors.UsageError: no lake\nCaused by: y.Z: b", "no lake"),
    ],
)
def test_the_line_that_tells_is_shown(text, cause):
    assert spark.cause_of(RuntimeError(text)).startswith(cause)


def hidden(how):
    """Raise a Spark error that hides a Ctrl-C, as PySpark does."""
    try:
        try:
            try:
                raise KeyboardInterrupt
            finally:
                raise ValueError("the job was cancelled")
        except ValueError:
            if how == "from None":
                raise RuntimeError("converted") from None
            raise RuntimeError("converted") from OSError("another")
    except RuntimeError as error:
        return error


@pytest.mark.parametrize("how", ["from None", "from another"])
def test_ctrl_c_behind_an_error_of_spark_is_ctrl_c(how):
    with pytest.raises(KeyboardInterrupt):
        spark.raise_if_interrupted(hidden(how))


def test_an_unrequested_error_is_ignored():
    error = RuntimeError("lost")
    error.__cause__ = error.__context__ = ValueError("why")
    error.__cause__.__context__ = error  # the chain of errors is a ring
    spark.raise_if_interrupted(error)


class Cancelled:
    """A fake of Spark whose user presses Ctrl-C."""

    def createDataFrame(self, _):  # noqa: N802 - Spark's name
        raise hidden("from None")

    def range(self, *_):
        raise hidden("from None")


def test_a_soak_takes_it_for_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        soak_spark._run_wave(Cancelled(), b"", [(0, 1, 2)], {})


@pytest.mark.lake
def test_a_report_takes_it_for_ctrl_c(lake, tmp_path, monkeypatch):
    from results.spark import driver
    from tests.results.spark.test_report import BUDGETS, opened

    there = opened(shutil.copytree(lake, tmp_path / "lake"))
    monkeypatch.setattr(driver, "cores_here", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        driver.SparkLake(Cancelled(), there, there.snapshot(), budgets=BUDGETS)


class Clock:
    """A timer that is either due as soon as it starts, or never."""

    due = True

    def __init__(self, after_s, tell):
        assert after_s == spark.SILENCE_S
        self.tell = tell

    def start(self):
        if self.due:
            self.tell()

    def cancel(self):
        Clock.cancelled = True


@pytest.mark.parametrize("due", [True, False])
def test_missing_executors_are_reported(due, monkeypatch, capsys):
    monkeypatch.setattr(Clock, "due", due)
    monkeypatch.setattr(Clock, "cancelled", False, raising=False)
    monkeypatch.setattr(spark.threading, "Timer", Clock)

    assert spark.prepare_workers(Workers()) == 2
    told = "spark: no executor has answered for 45 s, and none may come: is there a worker"
    assert capsys.readouterr().err.startswith(told) == due
    assert Clock.cancelled
