"""`oncelog-doors pulsar-proof`."""

import argparse
from pathlib import Path

from oncelog_doors.proof.command import described, epilog
from oncelog_doors.proof.histories import Proof
from oncelog_doors.proof.pulsar.client_kinds import client_kinds
from oncelog_doors.proof.pulsar.histories import HISTORIES, LEFT_OUT
from oncelog_doors.proof.pulsar.scene import Scene

_SIDES = """\
  under Pulsar's rule   the same door, where Pulsar's rule for duplicates decides: it compares a sequence id with the
                        highest one of its producer name. Of acknowledgements, the log gets what a broker of Pulsar
                        would write. Each row must fail in the way that is stated.
  behind the door       as users get it. Each row must pass."""
_CLIENTS = f"""\
clients:
  python   pip install pulsar-client
  java     --java DIR: a folder with all jars of the client, which for example
             mvn dependency:copy-dependencies -DoutputDirectory=DIR
           makes for a pom.xml with the dependency org.apache.pulsar:pulsar-client. It needs a JDK, 11 or later.
  go       --go PROGRAM: the client of version 0.19 or later, built in an empty folder with
             cp {Path(__file__).with_name("clients") / "go"}/main.go . && go mod init proof-client
             go get github.com/apache/pulsar-client-go@v0.19.0 . && go build
"""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--java", type=Path, metavar="DIR", help="folder with the jars of the Java client")
    parser.add_argument("--go", type=Path, metavar="PROGRAM", help="the program with the Go client")


PULSAR = Proof(
    system="Pulsar",
    protocol="pulsar",
    help="show Pulsar's defects with its own clients, and that a door has none of them",
    description=described("Pulsar", _SIDES, "a Reader of the same library reads back, or\nanother consumer receives"),
    epilog=epilog(
        _CLIENTS,
        "oncelog-doors pulsar-proof",
        "oncelog-doors pulsar-proof --only D2 --client python",
        "oncelog-doors pulsar-proof --java ./jars --go ./proof-client -o json",
    ),
    histories=HISTORIES,
    left_out=LEFT_OUT,
    clients=("python", "java", "go"),
    scene=Scene,
    left_door="oncelog_doors.proof.pulsar.door",
    left_deduplication=False,
    kinds=lambda options: client_kinds(options.java, options.go),
    add_options=_add_options,
)
