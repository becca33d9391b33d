"""What `oncelog pipeline audit --compare` finds in the copies of a real mirror."""

from dataclasses import replace
from typing import Any

import pytest

import oncelog
from oncelog.client.client import network_of
from oncelog.client.producing.producer import sender_of
from oncelog.client.rest_calls import rest
from oncelog.client.two_clusters import two_clusters
from oncelog.core.formats.columns import encode_origin, encode_values
from oncelog.core.formats.origin import pack_origin
from oncelog.verify.mirrored import MirrorComparison
from oncelog_effects.mirror.topics import subscription_of
from oncelog_spark.audit.compare import add_comparisons, compare_log
from tests.effects.cluster.mirroring import once, read_all

pytestmark = pytest.mark.asyncio


async def found_in(source: oncelog.AsyncClient, target: oncelog.AsyncClient, topic: str) -> MirrorComparison:
    ids = await two_clusters(source, target, None)
    found = await compare_log(source, target, ids.source, f"public/default/{topic}")
    assert found is not None
    return found


def judged(found: MirrorComparison | None) -> dict[str, Any]:
    """The report of a topic that is good but for its mirror."""
    topic: dict[str, Any] = {
        "topic": "t", "verdict": "good", "violations": [], "violations_count": 0, "not_checked": [], "checks": [],
    }  # fmt: skip
    report = {"verdict": "good", "topics": [topic]}
    add_comparisons(report, {"t": found})
    assert report["verdict"] == topic["verdict"]
    return topic


async def test_copies_are_compared_with_their_originals(
    client: oncelog.AsyncClient, source: oncelog.AsyncClient
) -> None:
    """Message by message: what is equal, not copied yet, was skipped, is doubled, and was changed."""
    producer = await source.create_producer("beside", compression="zlib")
    await producer.send_many(
        [b"%d" % number for number in range(10)], keys=["k", None] * 5, properties=[{"n": "1"}, None] * 5,
        event_times_ms=[1, None] * 5,
    )  # fmt: skip
    assert judged(await compare_of_missing(source, client))["verdict"] == "incomplete"
    await once(source, client, "beside")
    await (await client.create_producer("beside")).send(b"of the target")
    found = await found_in(source, client, "beside")
    assert (found.compared, found.is_good, found.not_copied) == (10, True, 0)
    assert judged(found)["verdict"] == "good"
    await producer.send_many([b"10", b"11"])
    found = await found_in(source, client, "beside")
    assert (found.compared, found.not_copied, found.not_copied_from) == (10, 2, 10)
    assert judged(found)["verdict"] == "incomplete"
    name = subscription_of(network_of(client).lookup.cluster_id)
    await rest(source, "POST", f"/admin/v2/persistent/public/default/beside/subscription/{name}/skip_all")
    await producer.send(b"12")
    await once(source, client, "beside", allow_gap=True)
    newest = (await read_all(client, "beside"))[-1]
    batch = newest._batch.origin
    assert batch is not None
    mirror = await client.create_producer("beside", producer_name=newest.producer_name)
    again = encode_values([b"12"]) + encode_origin(pack_origin(batch))
    await sender_of(mirror).send_payloads([(again, [13])])
    await producer.send(b"13")
    original = (await read_all(source, "beside"))[-1]
    assert original._batch.origin is None
    place = original.message_id
    other = replace(
        batch, position=place.position, batch_index=place.batch_index, first_index=original.index,
        checksum=original.batch_checksum, sequence_ids=[14],
    )  # fmt: skip
    changed = encode_values([b"changed"]) + encode_origin(pack_origin(other))
    await sender_of(mirror).send_payloads([(changed, [14])])
    found = await found_in(source, client, "beside")
    assert (found.compared, found.missing, found.doubled, found.differs) == (11, 2, 1, 1)
    topic = judged(found)
    assert (topic["verdict"], topic["violations_count"]) == ("violations", 4)
    assert [each["rule"] for each in topic["violations"]] == ["mirror missing", "mirror doubled", "mirror differs"]
    assert topic["violations"][0]["message"] == "index 10: the target has no copy of messages 10 to 11 of the source"


async def compare_of_missing(source: oncelog.AsyncClient, target: oncelog.AsyncClient) -> MirrorComparison | None:
    """The target does not have the topic."""
    ids = await two_clusters(source, target, None)
    found = await compare_log(source, target, ids.source, "public/default/beside")
    assert found is None
    return found
