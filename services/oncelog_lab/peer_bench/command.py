"""`oncelog bench peers`: Oncelog beside Apache Kafka and Apache Pulsar, on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.extras import LAB, check_installed
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import OncelogError
from oncelog_lab.bench.options import Data
from oncelog_lab.bench.running import run_bench
from oncelog_lab.peer_bench.loads import STEADY_RUNS, WARM_UP_RUNS_MAX, PeerLoad
from oncelog_lab.running import failed, quiet_grpc

_Kafka = Annotated[
    Path | None, typer.Option("--kafka", metavar="DIR", help="An unpacked Apache Kafka 4, with its folder libs.")
]
_Pulsar = Annotated[
    Path | None, typer.Option("--pulsar", metavar="DIR", help="An unpacked Apache Pulsar 4, with its folder bin.")
]
_Only = Annotated[
    list[PeerLoad] | None, typer.Option("--only", metavar="LOAD", help="Measure only this. May be repeated.")
]
_Seconds = Annotated[float, typer.Option("--seconds", min=0.2, max=60, help="Duration of one run, in seconds.")]
_WarmUpRuns = Annotated[
    int,
    typer.Option("--warm-up-runs", min=STEADY_RUNS, max=100, help="Measure a client that is not steady after so many."),
]


def peers(
    kafka: _Kafka = None,
    pulsar: _Pulsar = None,
    only: _Only = None,
    seconds: _Seconds = 2.0,
    warm_up_runs: _WarmUpRuns = WARM_UP_RUNS_MAX,
    data: Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare Oncelog with Kafka and Pulsar on this machine, in about an hour for both.

    Needs Java 17 or 21, 40 GB of free disk, and the Python clients of what is compared:

    pip install confluent-kafka pulsar-client

    oncelog bench peers --kafka ~/kafka --pulsar ~/pulsar

    oncelog bench peers --kafka ~/kafka --only callbacks --only latency -o json

    \b
    callbacks, futures, lists   publish 100 B: a callback or a future for each
                                message, or lists of messages
    lists-1k, read-1k           publish 1 KiB in lists; read it right afterwards
    read-batches, read-objects  read 100 B, many or one at a time
    latency                     p50 and p99 of one message, 200 a second

    Each system runs alone, on free ports of the loopback interface and on an empty temporary directory: three copies,
    synced to disk, with deduplication (Kafka: idempotent producers), heaps of 1 GiB. -o json has all settings and runs.

    Each client runs until three runs differ by less than 5 %; then three runs are measured. All of it happens in the
    order Oncelog, Kafka, Pulsar, and in the opposite one. A figure is the median of both; its ratio is to Oncelog's.
    The clients are those for Python, and kafka-producer-perf-test, kafka-consumer-perf-test and pulsar-perf.

    Leave the machine alone meanwhile. Ctrl-C ends every process and deletes the directory.
    """
    quiet_grpc()
    try:
        check_installed(LAB)
        from oncelog_lab.peer_bench.comparison import peers_rows, systems_of

        systems = systems_of(kafka, pulsar, seconds)
    except OncelogError as error:
        raise failed(error) from error
    loads = [load for load in PeerLoad if load in (only or PeerLoad)]
    run_bench(lambda stack, tell: peers_rows(stack, systems, loads, tell, warm_up_runs), data, output)
