"""A file through Pulsar's Python client: its program, the door, the owner and a storage node are killed."""

import asyncio
import sys
from pathlib import Path

import pulsar
import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import client
from tests.doors.clients import publish_file
from tests.doors.clients.door_clusters import lasting_pulsar_cluster
from tests.doors.clients.file_publisher import TOPIC, Publisher, publish_through_kills

__all__ = ["client", "lasting_pulsar_cluster"]

TIMEOUT_S = 30


def read_with_pulsar(url: str) -> list[tuple[str, bytes]]:
    """All messages of the topic, through a Reader. Its library shows no sequence ids."""
    found = []
    own = pulsar.Client(url, operation_timeout_seconds=TIMEOUT_S, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    try:
        reader = own.create_reader(TOPIC, pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(TIMEOUT_S * 1000)
            found.append((message.producer_name(), message.data()))
    finally:
        own.close()
    return found


@pytest.mark.asyncio
async def test_each_line_is_read_once_and_in_order(
    cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """By a reader of the SDK, and by a Reader of Pulsar's client."""
    url = cluster.status()["pulsar_url"]
    publisher = Publisher(tmp_path, [sys.executable, publish_file.__file__], url, resumes=True)
    await publish_through_kills(cluster, client, publisher)
    assert await asyncio.to_thread(read_with_pulsar, url) == [("importer", line) for line in publisher.lines]
