"""`oncelog-doors kafka-proof`."""

import argparse
import importlib.util

from oncelog_doors.proof.children import module
from oncelog_doors.proof.command import described, epilog
from oncelog_doors.proof.histories import ClientKind, Proof
from oncelog_doors.proof.kafka.histories import HISTORIES, LEFT_OUT
from oncelog_doors.proof.kafka.scene import Scene

_SIDES = """\
  under Kafka's rule   the same door, where Kafka's rule for duplicates decides: of each producer id it knows five
                       batches, one after a restart, and none if their records are a day old; a producer id that it
                       does not know may begin at any number. Each row must fail in the way that is stated.
  behind the door      as users get it. Each row must pass."""
#: {name of a client: its module, and the program with it}
_PROGRAMS = {
    "confluent-kafka": ("confluent_kafka", "oncelog_doors.proof.kafka.clients.confluent_client"),
    "kafka-python": ("kafka", "oncelog_doors.proof.kafka.clients.python_client"),
    "aiokafka": ("aiokafka", "oncelog_doors.proof.kafka.clients.aiokafka_client"),
}


def client_kinds(_options: argparse.Namespace | None = None) -> list[ClientKind]:
    return [
        ClientKind(name, missing=f"pip install {name}")
        if importlib.util.find_spec(library) is None
        else ClientKind(name, tuple(module(program)))
        for name, (library, program) in _PROGRAMS.items()
    ]


KAFKA = Proof(
    system="Kafka",
    protocol="kafka",
    help="show Kafka's defects with its own clients, and that a door has none of them",
    description=described("Kafka", _SIDES, "a consumer of the same library reads back"),
    epilog=epilog(
        f"clients: pip install {' '.join(_PROGRAMS)}\n",
        "oncelog-doors kafka-proof",
        "oncelog-doors kafka-proof --only K2 --client confluent-kafka -o json",
    ),
    histories=HISTORIES,
    left_out=LEFT_OUT,
    clients=tuple(_PROGRAMS),
    scene=Scene,
    left_door="oncelog_doors.proof.kafka.door",
    left_deduplication=True,
    kinds=client_kinds,
)
