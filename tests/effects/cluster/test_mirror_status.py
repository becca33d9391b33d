"""`oncelog mirror status`: what it tells, and what a script learns from its exit code."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import oncelog
from oncelog.client.rest_calls import rest
from oncelog.core.effect_errors import SourceTooLarge, SourceUnsupported
from oncelog.core.errors import TopicNotFound
from oncelog.testing import LocalCluster
from tests.cluster.clients_of_pulsar import sent_by_a_client_of_pulsar
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.commands import COMMAND_TIMEOUT_S, environment
from tests.cluster.forked_program import run_forked
from tests.cluster.programs import running
from tests.cluster.until import until
from tests.core.pulsar_entries import Sent, batched, encrypted
from tests.effects.cluster.mirroring import connected, connected_mirror, once, read_all, start

pytestmark = pytest.mark.asyncio


async def status(there: LocalCluster, cluster: Cluster, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what is printed of each partition."""
    words = ("status", "--from", there.url, "--to", cluster.url, "-o", "json", *words)
    done = await asyncio.to_thread(run_forked, ["mirror", *words], environment(), timeout_s=COMMAND_TIMEOUT_S)
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)["partitions"]


async def test_status_of_what_waits_is_copied_and_is_lost(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """Before, during and after a mirror; what the target has lost; and a lag that is too long. The mirror that runs is
    ready once both clusters answer."""
    producer = await source.create_producer("told")
    await producer.send_many([b"%d" % number for number in range(5)])
    code, [one] = await status(there, cluster, "--topic", "told")
    assert (code, one["state"], one["source_last"], one["copied_to"]) == (1, "not_mirrored", 4, -1)
    assert (one["lag_messages"], one["mirrors"]) == (5, 0)
    words = ["--from", there.url, "--to", cluster.url, "--topic", "told", "--health-port", "0"]
    async with running(start(tmp_path, *words)) as mirror:
        await mirror.reaches(lambda: "health: " in mirror.log.read_text(), "its health port")
        url = mirror.log.read_text().split("health: ")[1].split()[0]

        async def is_copied() -> bool:
            try:
                await client.last_message_id("told")
            except TopicNotFound:
                return False
            return len(await read_all(client, "told")) == 5

        await until(is_copied, DEADLINE_S, every_s=0.2)
        code, [one] = await status(there, cluster, "--topic", "told", "--max-lag", "0")
        assert (code, one["copied_to"], one["lag_messages"], one["lag_s"]) == (0, 4, 0, 0.0)
        assert (one["mirrors"], one["active"], one["opened"], one["rewound"]) == (1, True, 1, 0)
        async with httpx.AsyncClient(verify=False) as http:

            async def is_ready() -> bool:
                return bool((await http.get(f"{url}/readyz")).status_code == 200)

            await until(is_ready, DEADLINE_S, every_s=0.1)
    await connected(source, "told", consumers=0)  # its owner may see later that the killed mirror is gone
    await producer.send_many([b"5", b"6"])
    code, [one] = await status(there, cluster, "--topic", "told", "--max-lag", "0")
    assert (code, one["state"], one["lag_messages"]) == (1, "no_mirror", 2)
    assert one["lag_s"] > 0
    assert "start `oncelog mirror" in one["message"]
    async with connected_mirror(source, client, "told") as consumer:
        first = (await consumer.receive()).delivery
        await consumer.ack_below(
            first.seek_epoch, first.generation, 7
        )  # as if the target had had them, and was restored
    await connected(source, "told", consumers=0)
    code, [one] = await status(there, cluster, "--topic", "told")
    assert (code, one["state"], one["lost_messages"]) == (1, "no_mirror", 2)
    await once(source, client, "told")
    code, [one] = await status(there, cluster, "--topic", "told")
    assert (code, one["state"], one["lost_messages"], one["rewound"], one["opened"]) == (0, "copied", 0, 1, 2)


async def test_status_of_what_a_mirror_refuses(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient
) -> None:
    """Of a pattern: partitions that differ, and messages that were deleted before they were copied. A partition that
    nobody has used is no trouble, and neither are copies of another cluster."""
    await rest(source, "PUT", "/admin/v2/persistent/public/default/judged-a/partitions", 2)
    await rest(client, "PUT", "/admin/v2/persistent/public/default/judged-a/partitions", 3)
    producer = await source.create_producer("judged-b")
    await producer.send(b"0")
    await once(source, client, "judged-b")
    await producer.send_many([b"1", b"2"])
    await rest(source, "DELETE", "/admin/v2/persistent/public/default/judged-b/truncate")
    await producer.send(b"3")
    await rest(source, "PUT", "/admin/v2/persistent/public/default/judged-c/partitions", 2)
    await (await source.create_producer("judged-c-partition-1")).send(b"0")
    await once(source, client, "judged-c")
    await (await client.create_producer("judged-c-partition-1")).send(b"of the target")
    await once(client, source, "judged-c")
    code, found = await status(there, cluster, "--pattern", "judged-.*")
    assert code == 1
    told = {each["topic"].rpartition("/")[2]: each for each in found}
    assert {name: each["state"] for name, each in told.items()} == {
        "judged-a": "partitions_differ", "judged-b": "gap", "judged-c-partition-0": "copied",
        "judged-c-partition-1": "copied",
    }  # fmt: skip
    assert (told["judged-b"]["gap_messages"], told["judged-b"]["copied_to"]) == (2, 0)
    assert told["judged-c-partition-1"]["source_last"] == 1  # the copy of the target's message
    code, _ = await status(there, cluster, "--topic", "judged-c")
    assert code == 0


async def test_mirror_ends_at_a_message_in_chunks(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient
) -> None:
    """At once, behind all that it can copy, also where its client would not join the chunks. The status says so, and a
    gap in the place of the message is passed."""
    topic = "chunked-at-source"
    producer = await source.create_producer(topic, chunking=True)
    await producer.send(b"0")
    await producer.send(bytes(6 * 1024 * 1024))
    await producer.send(b"2")
    for bytes_max in (64 << 20, 0):
        async with await oncelog.connect(there.url, max_message_bytes=bytes_max) as reading:
            with pytest.raises(SourceTooLarge, match=f"message 1 of public/default/{topic} is in chunks, .*allow-gap"):
                await once(reading, client, topic)
        assert [message.value for message in await read_all(client, topic)] == [b"0"]
    async with connected_mirror(source, client, topic):
        code, [one] = await status(there, cluster, "--topic", topic)
    assert (code, one["state"], one["copied_to"], one["mirrors"]) == (1, "too_large", 0, 1)
    assert "message 1 of the source is in chunks" in one["message"]
    await rest(source, "DELETE", f"/admin/v2/persistent/public/default/{topic}/truncate")
    await producer.send(b"3")
    await once(source, client, topic, allow_gap=True)
    assert [message.value for message in await read_all(client, topic)] == [b"0", b"3"]


@pytest.mark.parametrize(
    ("kind", "entry", "index"),
    [
        ("a null", batched([Sent(1, b"1"), Sent(2, b"2", b"key", {"a": "b"}), Sent(3, None)]), 3),
        ("an encrypted", encrypted(1, 3, count=3), 1),
    ],
    ids=["null", "encrypted"],
)
async def test_mirror_ends_at_a_value_that_it_does_not_copy(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient, kind: str,
    entry: bytes, index: int,
) -> None:  # fmt: skip
    """At once, behind all that it can copy, also when it is started again. Such a value would become an empty one. The
    status says so, and a gap in the place of the message is passed."""
    topic = f"pulsar-at-source-{index}"
    producer = await source.create_producer(topic)
    await producer.send(b"0")
    await sent_by_a_client_of_pulsar(source, topic, entry)
    values = [b"0", b"1", b"2"][:index]
    for _ in range(2):
        wanted = f"message {index} of public/default/{topic} has {kind} value of a client of .*Pulsar, .*allow-gap"
        with pytest.raises(SourceUnsupported, match=wanted):
            await once(source, client, topic)
        copies = await read_all(client, topic)
        assert [message.value for message in copies] == values
        assert [message.key for message in copies if message.properties == {"a": "b"}] == [b"key"] * (index == 3)
    async with connected_mirror(source, client, topic):
        code, [one] = await status(there, cluster, "--topic", topic)
    assert (code, one["state"], one["copied_to"]) == (1, "unsupported", index - 1)
    assert f"has {kind} value" in one["message"]
    await rest(source, "DELETE", f"/admin/v2/persistent/public/default/{topic}/truncate")
    await producer.send(b"4")
    await once(source, client, topic, allow_gap=True)
    assert [message.value for message in await read_all(client, topic)] == [*values, b"4"]
