"""The memory of a pod has room for what its settings let it hold."""

import re

import pytest

from oncelog.runtime.settings import MetadataSettings, load
from tests.kubernetes.chart import FILES, containers, environment

#: A metadata service without anything to do, and what Python needs besides the bytes that are counted.
IDLE_BYTES = 256 << 20
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


@pytest.mark.parametrize("name", FILES)
def test_metadata_pod_is_limited_and_has_room_for_its_budgets(name: str) -> None:
    """Without a limit, one that holds too much takes the memory of its node."""
    pods = [each for part, each in containers(name) if part == each["name"] == "metadata"]
    for pod in pods:
        number, unit = re.fullmatch(r"(\d+)([MG]i)", pod["resources"]["limits"]["memory"]).groups()  # type: ignore[union-attr]
        settings = load(MetadataSettings, {n: v for n, v in environment(pod).items() if n.endswith("_BYTES_MAX")})
        held = settings.gateway_bytes_max + settings.rest_bodies_bytes_max + settings.consume_bytes_max
        assert int(number) * UNITS[unit] >= held + IDLE_BYTES
    assert pods
