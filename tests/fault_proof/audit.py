"""The oracles of `oncelog.verify` on some topics of a cluster, as `oncelog pipeline audit --all-copies` runs them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from oncelog.cli.connection import Connection
from oncelog_spark.audit.job import check_plan, plan_topics
from oncelog_spark.audit.range_task import fold_entries
from oncelog_spark.cli.options import given
from oncelog_spark.cluster import ClusterConnection
from oncelog_spark.source.options import source_options
from tests.cluster.cluster_fixture import Cluster

_ENTRIES_MAX = 100_000


async def violations_of(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """Every finding, as text: of the fold of the log, the chain of ledgers, the live map, the snapshot, the copies."""
    about = given(**Connection(cluster.url).as_job_options(), topics=",".join(topics))
    options = source_options(about, {}, streaming=False)
    found: list[str] = []
    async with ClusterConnection(options.connection) as connection:
        for plan in await plan_topics(connection, options=options, entries_max=_ENTRIES_MAX, all_copies=True):
            summaries = [await fold_entries(piece) for piece in plan.ranges]
            check = await asyncio.to_thread(check_plan, plan, summaries, _one_after_the_other)
            found += [f"{plan.topic}: {finding}" for finding in check.findings]
    return found


def _one_after_the_other(task: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    return [task(piece) for piece in pieces]
