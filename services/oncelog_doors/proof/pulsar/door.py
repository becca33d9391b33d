"""`python -m oncelog_doors.proof.pulsar.door URL`: the left door of the proof, at a free port."""

import sys

from oncelog.runtime.process import load_settings, run
from oncelog.runtime.settings import DoorSettings
from oncelog_doors.process import DoorProcess
from oncelog_doors.proof.pulsar.cluster import PulsarCluster, PulsarSends


def main(url: str) -> int:
    settings = load_settings(DoorSettings, {"url": url, "pulsar_address": "127.0.0.1:0", "health_port": 0})
    door = DoorProcess(settings, cluster=PulsarCluster, sends=PulsarSends)
    return run(door.run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
