"""`python -m tests.spark_proof [--seed N] [--lines N] [--only JOURNEY …] [-o json]`: Spark proves the log's guarantees.

A real file goes to a topic, through queries of Spark whose workers, executors, drivers and topic owners are killed with
SIGKILL, to other topics, and back to a reader. Beside the queries, consumers acknowledge messages of the source. The
exit code is 0 when each target is what one process of plain Python makes of the file, every planned kill was made, the
control without protection shows duplicates, and the owners' subscriptions are the folds of their ack logs.
"""

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from oncelog_lab.demo.flights import FLIGHTS, cache_directory, fetch
from tests.cluster.cluster_fixture import Cluster
from tests.proofs.arguments import proof_arguments, proof_directory
from tests.spark_proof.consumption import Acknowledged, compare, consuming
from tests.spark_proof.flights import read_rows
from tests.spark_proof.journey_run import JourneyRun, Outcome
from tests.spark_proof.plan import Journey, journeys
from tests.spark_proof.report import as_json, as_table
from tests.spark_proof.source_topic import Filled, fill

#: Micro-batches of each query, for any size of the file.
BATCHES = 8


async def prove(
    cluster: Cluster, directory: Path, chosen: list[Journey], lines: int
) -> tuple[Filled, Acknowledged, list[Outcome]]:
    """Run all journeys, one after the other; print a line at the end of each."""
    partitions = read_rows(fetch(FLIGHTS, cache_directory()), lines)
    filled = await fill(cluster, partitions)
    outcomes = []
    async with consuming(cluster) as acknowledged:
        for journey in chosen:
            place = directory / journey.name.replace(" ", "-")
            outcome = await JourneyRun(journey, cluster, place, -(-lines // BATCHES)).run(partitions)
            outcomes.append(outcome)
            injected = sum(outcome.hits.values())
            print(f"{journey.name}: {injected} faults, {outcome.verdict}, {outcome.seconds:.0f} s", file=sys.stderr)
    return filled, acknowledged, outcomes


def main() -> int:
    names = [journey.name for journey in journeys(1, BATCHES)]
    arguments = proof_arguments(
        "python -m tests.spark_proof",
        __doc__,
        seed="which batches get a fault, and where",
        thing="journey",
        names=names,
        why_lines_min="smaller tasks end before a fault",
    )
    chosen = [journey for journey in journeys(arguments.seed, BATCHES) if journey.name in arguments.only]
    with ExitStack() as stack:
        directory = proof_directory(stack, arguments.directory, "spark-proof-")
        cluster = stack.enter_context(Cluster.running(directory, ledger_entries_max=16))
        filled, acknowledged, outcomes = asyncio.run(prove(cluster, directory, chosen, arguments.lines))
        compare(cluster, acknowledged)
    told = (arguments.seed, filled, acknowledged, outcomes)
    print(json.dumps(as_json(*told)) if arguments.output == "json" else as_table(*told))
    return 0 if acknowledged.good and all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
