"""`python -m tests.spark_proof [--seed N] [--lines N] [--only JOURNEY …] [-o json]`: Spark proves the log's guarantees.

A real file goes to a topic, through queries of Spark whose workers, executors, drivers and topic owners are killed with
SIGKILL, to other topics, and back to a reader. Beside the queries, consumers acknowledge messages of the source. The
exit code is 0 when each target is what one process of plain Python makes of the file, every planned kill was made, the
control without protection shows duplicates, and the owners' subscriptions are the folds of their ack logs.
"""

import sys
from argparse import Namespace
from pathlib import Path

from oncelog_lab.demo.flights import FLIGHTS, cache_directory, fetch
from tests.cluster.cluster_fixture import Cluster
from tests.proofs.command import prove_by_command
from tests.proofs.flights import read_rows
from tests.proofs.report import Report
from tests.proofs.source_topic import create, publish
from tests.spark_proof.consumption import compare, consuming
from tests.spark_proof.flights import SOURCE
from tests.spark_proof.journey_run import JourneyRun
from tests.spark_proof.plan import journeys

#: Micro-batches of each query, for any size of the file.
BATCHES = 8


async def prove(given: Namespace, cluster: Cluster, directory: Path) -> Report:
    """Run all journeys, one after the other; print a line at the end of each."""
    partitions = read_rows(fetch(FLIGHTS, cache_directory()), given.lines)
    await create(cluster, SOURCE)
    # All of partition 0 again, by a second instance of its producer.
    again = [*enumerate(partitions), (0, partitions[0])]
    filled = await publish(cluster, SOURCE, [(number, rows, range(len(rows))) for number, rows in again])
    outcomes = []
    async with consuming(cluster) as acknowledged:
        for journey in (each for each in journeys(given.seed, BATCHES) if each.name in given.only):
            place = directory / journey.name.replace(" ", "-")
            outcome = await JourneyRun(journey, cluster, place, -(-given.lines // BATCHES)).run(partitions)
            outcomes.append(outcome)
            injected = sum(outcome.hits.values())
            print(f"{journey.name}: {injected} faults, {outcome.verdict}, {outcome.seconds:.0f} s", file=sys.stderr)
    await compare(cluster, acknowledged)
    return Report(given.seed, filled, "journeys", outcomes, acknowledged.besides)


def main() -> int:
    return prove_by_command(
        "spark_proof",
        __doc__,
        prove,
        seed="which batches get a fault, and where",
        thing="journey",
        names=[journey.name for journey in journeys(1, BATCHES)],
        why_lines_min="smaller tasks end before a fault",
    )


if __name__ == "__main__":
    sys.exit(main())
