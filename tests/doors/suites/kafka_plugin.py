"""A plugin of pytest for the tests of Kafka's Python clients, as they are, in front of a door.

It runs in the environment that has the clients, so it imports pytest and the standard library only. It prints lines
that begin with #:

    #found NODE                                 a test that needs a broker
    #passed NODE, #failed NODE, #skipped NODE   its outcome; a test with several lines has passed if all of them say so

Some tests would start Kafka in a container, or download it. They get the door: the hook of a plugin comes before the
fixture itself, so no file of the tests is changed.
"""

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

#: HOST:PORT of the door.
SERVER = "SUITE_SERVER"
#: A test that needs a broker uses one of these fixtures, itself or through others.
_BROKERS = {"kafka_broker", "kafka_broker_factory", "kafka_cluster", "sasl_cluster", "setup_test_class", "ssl_kafka"}


def _replaced() -> dict[str, Any]:
    """{fixture of aiokafka's tests: what it gives here}. The door has one port, without TLS and without SASL."""
    host, _, port = os.environ.get(SERVER, ":0").rpartition(":")
    others = dict.fromkeys(("ssl_port", "sasl_plain_port", "sasl_ssl_port"), 0)
    server = SimpleNamespace(host=host, port=int(port), hosts=[f"{host}:{port}"], container=None, **others)
    unused = SimpleNamespace()
    return {"docker": unused, "ssl_folder": unused, "kerberos_utils": unused, "kafka_server": server}


_REPLACED = _replaced()


class _NoCluster:
    """For confluent-kafka's tests, which would download Kafka where the given broker is not enough."""

    def __init__(self, **_: object) -> None:
        raise RuntimeError("this test starts a cluster of its own")


def pytest_load_initial_conftests() -> None:
    for name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
        sys.modules[name] = ModuleType(name)
    sys.modules["trivup.clusters.KafkaCluster"].__dict__["KafkaCluster"] = _NoCluster


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    """What the fixture gives; None leaves it to the next hook."""
    value = _REPLACED.get(fixturedef.argname)
    if value is not None:
        fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def pytest_collection_finish(session: Any) -> None:
    for item in session.items:
        if set(item.fixturenames) & _BROKERS:
            print(f"\n#found {item.nodeid}", flush=True)


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        print(f"\n#{report.outcome} {report.nodeid}", flush=True)
