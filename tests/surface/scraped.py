"""The metrics of a running cluster: name, type, help and the names of the labels, of each service.

A label is seen only once something was counted, so the cluster does a little of everything first.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from prometheus_client.parser import text_string_to_metric_families

import oncelog
from tests.cluster.cluster_fixture import REQUEST_S, Cluster
from tests.cluster.kills import idle

TOPIC = "surface"
MESSAGES = 10

#: {role: {"name type help": labels}}
Seen = dict[str, dict[str, set[str]]]


def scraped_metrics() -> Iterator[tuple[str, str]]:
    with TemporaryDirectory() as directory, Cluster.running(Path(directory)) as cluster:
        seen = asyncio.run(_seen(cluster))
    for role, families in sorted(seen.items()):
        lines = (f"{family} {{{', '.join(sorted(labels))}}}" for family, labels in sorted(families.items()))
        yield f"metrics/{role}.txt", "\n".join(lines)


async def _seen(cluster: Cluster) -> Seen:
    await _work(cluster)
    await cluster.kill(await cluster.owner_of(TOPIC), once=idle)
    await cluster.healed()
    await _work(cluster)
    seen: Seen = defaultdict(lambda: defaultdict(set))
    for process in cluster.processes.values():
        if "health" in process["serving"]:
            await _scrape(process["serving"]["health"], seen[process["role"]])
    return seen


async def _work(cluster: Cluster) -> None:
    """Publish, consume and acknowledge some messages."""
    async with await oncelog.connect(cluster.url) as client:
        async with await client.create_producer(TOPIC, producer_name="importer") as producer:
            await producer.send_many([b"message %d" % number for number in range(MESSAGES)])
        async with await client.subscribe(TOPIC, subscription="billing", start=oncelog.EARLIEST) as consumer:
            await consumer.ack([await consumer.receive() for _ in range(MESSAGES)])


async def _scrape(address: str, families: dict[str, set[str]]) -> None:
    async with httpx.AsyncClient(timeout=REQUEST_S, trust_env=False, verify=False) as client:
        text = (await client.get(f"http://{address}/metrics")).text
    for family in text_string_to_metric_families(text):
        labels = families[f"{family.name} {family.type} {family.documentation}"]
        labels.update(label for sample in family.samples for label in sample.labels)
