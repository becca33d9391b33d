"""The newest part of a log that a restore of ZooKeeper's records could not bring back."""

from dataclasses import replace

import httpx

from oncelog.core.formats.topic_record import GivenUpBehind
from oncelog.core.ids import LedgerId, OwnerEpoch, TopicId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.one_record import EPOCHS_MARGIN
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.until import until


async def new_ledger(cluster: Cluster, topic: str) -> None:
    """What is published from now on is in another ledger than what is there."""
    epoch = (await cluster.stats(topic))["owner_epoch"]
    await cluster.change("PUT", f"{rest_path(topic)}/unload")
    await cluster.served_by_another(topic, epoch)


async def lose_tail(cluster: Cluster, topic: str, *, kept: int) -> None:
    """Give the topic the record that a restore with `--absent` writes: the first `kept` ledgers of its log, a higher
    epoch, and GivenUp owed. Return once another owner serves it."""
    stats = await cluster.stats(topic)
    session = await ZooKeeperSession.connect(cluster.serving("zookeeper"))
    try:
        topics = TopicStore(session)

        async def cut() -> bool:
            """Again, if the owner has written its record meanwhile."""
            stored = await topics.read(TopicId(stats["topic_id"]))
            assert stored is not None
            record = stored.value
            ledgers = record.ledgers[:kept]
            assert len(ledgers) < len(record.ledgers), record
            behind = GivenUpBehind(ledgers[-1].ledger_id, record.acks[-1] if record.acks else LedgerId(0), "operator")
            epoch = OwnerEpoch(record.owner_epoch + EPOCHS_MARGIN)
            shorter = replace(record, owner_epoch=epoch, ledgers=ledgers, given_up_behind=behind)
            return (await topics.write(shorter, version=stored.version)).status is WriteStatus.OK

        await until(cut, DEADLINE_S, waiting_for="the record without its newest ledgers")
    finally:
        await session.close()
    # The former owner finds that the record is not its own.
    answer: httpx.Response = await cluster.request("PUT", f"{rest_path(topic)}/unload")
    assert answer.status_code in {204, 404, 409, 503}, answer.text
    await cluster.served_by_another(topic, stats["owner_epoch"])
