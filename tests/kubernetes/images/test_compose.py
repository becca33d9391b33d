"""docker/compose.yaml: the same images, programs, ports and settings as those of the recipes and of the chart."""

import importlib.util
import json
import re
import tomllib
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from oncelog.runtime.settings import ProcessSettings, load, variable
from tests.kubernetes.chart import CHART, ROOT, SETTINGS, rendered, values_of, workloads
from tests.kubernetes.images.test_images import RECIPES, last_stage

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
#: {role: programs of the image}
PROGRAMS = {"storage": "oncelog.log_storage", "owner": "oncelog.topic_owner", "metadata": "oncelog.metadata"}
OWN = [name for name in SERVICES if name.partition("-")[0] in PROGRAMS]
#: They name addresses and directories, which differ, and what only a cluster of several machines needs.
_DIFFERENT = {
    "ADVERTISED_HOST",
    "ZOOKEEPER_HOSTS",
    "DATA_DIRECTORY",
    "LISTEN_HOST",
    "REDIS_URL",
    "STABILITY_TIMEOUT_MS",
}


def role(name: str) -> str:
    return name.partition("-")[0]


def settings_of(name: str) -> ProcessSettings:
    """As the process in the container reads them. Raises InvalidArgument."""
    return load(SETTINGS[role(name)], SERVICES[name]["environment"])


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def default(image: str) -> str:
    """The image that is used if no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", image)


def test_cluster_has_the_processes_of_the_chart() -> None:
    """Three storage nodes for three copies, and two of what may fail alone."""
    counts = {part: sum(role(name) == part for name in SERVICES) for part in (*PROGRAMS, "zookeeper", "redis")}
    assert counts == {"storage": 3, "owner": 2, "metadata": 2, "zookeeper": 1, "redis": 1}
    assert sum(counts.values()) == len(SERVICES)


def test_images_are_those_that_the_build_makes_and_the_chart_uses() -> None:
    """With this version, and programs that the image has."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    build = (ROOT / "docker/build.sh").read_text()
    assert '"${REPOSITORY}oncelog:$TAG"' in build
    values = values_of("default")
    for name, service in SERVICES.items():
        if name in OWN:
            assert default(service["image"]) == f"oncelog:{version}"
            assert service["command"] == [PROGRAMS[role(name)]]
            assert importlib.util.find_spec(f"{PROGRAMS[role(name)]}.__main__") is not None
        else:
            image = values[name]["image"]
            assert default(service["image"]) == f"{image['repository']}:{image['tag']}"


@pytest.mark.parametrize("name", OWN)
def test_settings_are_known_and_those_of_the_chart(name: str) -> None:
    """An unknown one would end the process. Each process is found under its own name."""
    assert settings_of(name).advertised_host == name
    given = {key.removeprefix("ONCELOG_"): value for key, value in SERVICES[name]["environment"].items()}
    (container,) = next(each for each in workloads("default") if each["metadata"]["name"] == f"oncelog-{role(name)}")[
        "spec"
    ]["template"]["spec"]["containers"]
    chart = {each["name"].removeprefix("ONCELOG_"): each.get("value") for each in container["env"]}
    assert {key: value for key, value in given.items() if key not in _DIFFERENT} == {
        key: chart[key] for key in given if key not in _DIFFERENT
    }


def test_ports_are_those_of_the_image_and_published_on_this_machine_only() -> None:
    """There is no authentication."""
    exposed = dict(last_stage(RECIPES[0].read_text()))["EXPOSE"].split()
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == len({port.rpartition(":")[0] for port in published}) == 4
    for port in published:
        host, _, inner = port.split(":")
        assert host == "127.0.0.1"
        assert inner in exposed
    for name in OWN:
        settings = settings_of(name)
        assert {str(settings.grpc_port), str(settings.health_port)} <= set(exposed)
        assert f":{settings.health_port}/readyz" in " ".join(SERVICES[name]["healthcheck"]["test"])


def test_new_cluster_asks_every_storage_node() -> None:
    """At its health port, from the file that the metadata services read. Owners ask them, too."""
    nodes = COMPOSE["configs"]["storage-nodes"]["content"].split()
    assert nodes == [f"{name}:{settings_of(name).health_port}" for name in OWN if role(name) == "storage"]
    for name in OWN:
        if role(name) in {"metadata", "owner"}:
            (config,) = SERVICES[name]["configs"]
            assert config["source"] == "storage-nodes"
            assert SERVICES[name]["environment"][variable("new_cluster_nodes_file")] == config["target"]


def test_each_storage_node_has_a_volume_in_place_of_a_directory_of_the_image() -> None:
    """A new volume gets the owner of the directory that it replaces; elsewhere it would belong to root."""
    directory = dict(last_stage(RECIPES[0].read_text()))["WORKDIR"]
    named = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert sorted(volume.partition(":")[0] for volume in named) == sorted(COMPOSE["volumes"])
    for name in OWN:
        if role(name) == "storage":
            assert SERVICES[name]["volumes"] == [f"{name}:{directory}"]
            data = PurePosixPath(SERVICES[name]["environment"]["ONCELOG_DATA_DIRECTORY"])
            assert data.is_relative_to(directory)


def test_processes_may_drain_before_they_are_killed() -> None:
    for name in OWN:
        settings = settings_of(name)
        drain_ms = settings.drain_timeout_ms + getattr(settings, "stability_timeout_ms", 0)
        assert seconds(SERVICES[name]["stop_grace_period"]) * 1000 > drain_ms


def test_zookeeper_and_redis_are_configured_as_in_the_chart() -> None:
    """Sessions of 2 s are possible, and Redis loses no key."""
    chart = next(each for each in rendered("default") if "zoo.cfg" in each.get("data", {}))["data"]["zoo.cfg"]
    own = [line for line in COMPOSE["configs"]["zookeeper"]["content"].splitlines() if not line.startswith("#")]
    assert set(own) <= {"clientPort=2181", *chart.splitlines()}
    single = {"initLimit", "syncLimit", "quorumListenOnAllIPs", "reconfigEnabled", "skipACL", "clientPortAddress"}
    plain = {line.partition("=")[0] for line in chart.splitlines() if "=" in line and not line.startswith("#")}
    plain = {key for key in plain if not key.startswith(("ssl", "server", "client.", "secure", "metrics", "portUni"))}
    assert plain - {line.partition("=")[0] for line in own} <= single
    program, *options = SERVICES["redis"]["command"]
    assert program == "redis-server"
    given = {
        f"{name.removeprefix('--')} {value or json.dumps(value)}"
        for name, value in zip(options[::2], options[1::2], strict=True)
    }
    conf = (CHART / "files/redis/redis.conf").read_text().splitlines()
    assert given == {
        line for line in conf if line.split(" ")[0] in {"appendonly", "appendfsync", "save", "maxmemory-policy"}
    }
