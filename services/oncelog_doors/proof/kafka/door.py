"""`python -m oncelog_doors.proof.kafka.door URL`: the left door of the proof, at a free port."""

import sys

from oncelog.runtime.process import load_settings, run
from oncelog.runtime.settings import DoorSettings
from oncelog_doors.process import DoorProcess
from oncelog_doors.proof.kafka.cluster import RuleCluster
from oncelog_doors.proof.world import Side


def main(url: str) -> int:
    own = {"kafka_address": "127.0.0.1:0", "kafka_namespace_name": f"public/{Side.RULE.value}", "health_port": 0}
    settings = load_settings(DoorSettings, {"url": url, **own})
    return run(DoorProcess(settings, kafka=RuleCluster).run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
