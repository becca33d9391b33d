"""What a restore does about records that no source can give: an operator must accept it. Pure.

Rules
- A name without a readable record is that of a partitioned topic if topics `NAME-partition-N` exist. It gets as many
  partitions as the highest of them needs. Otherwise JOIN finds the topic that has the name.
- A record of a newer format is intact, but this version cannot say what a name of it leads to: it is told, too.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from oncelog.core.era import Era
from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import TopicId
from oncelog.core.names import parse_topic
from oncelog.core.rebuild.result import CopiedRecords, Review, ReviewReason
from oncelog.core.rebuild.sources import Inventory
from oncelog.metadata.restore.noted_records import NewestRecords
from oncelog.metadata_store.records.topic_store import NameRecord
from oncelog.metadata_store.session import paths


def review_lost(
    newest: NewestRecords, inventories: Iterable[Inventory], copied: CopiedRecords, era: Era
) -> list[Review]:
    """For each lost record one entry, which is named by its path. Partitioned names go to `newest.inferred`, so this is
    called before JOIN."""
    known = newest.names()
    newer = {path: why for path, why in newest.unreadable.items() if path.startswith(f"{paths.NAMES}/")}
    lost = newest.lost | newer
    if not lost:
        return []
    partitions = _partitions([*known, *_names_in_heads(newest, inventories)])
    return [
        Review(
            TopicId(""),
            path,
            ReviewReason.DAMAGED,
            f"{why}; accepted: {_accepted(path, newest, partitions, copied, era)}",
        )
        for path, why in sorted(lost.items())
    ]


def _names_in_heads(newest: NewestRecords, inventories: Iterable[Inventory]) -> set[str]:
    """Of topics that were not deleted."""
    deleted = set(newest.tombstones)
    return {
        held.head.name
        for inventory in inventories
        for held in inventory.ledgers.values()
        if held.head is not None and held.chain is not None and held.chain.topic_id not in deleted
    }


def _partitions(names: Iterable[str]) -> dict[str, int]:
    """{full name of a partitioned topic: how many partitions it has at least}."""
    found: dict[str, int] = {}
    for name in names:
        try:
            topic = parse_topic(name)
        except InvalidArgument:
            continue
        if topic.partition is not None:
            whole = f"{topic.namespace_name}/{topic.local}"
            found[whole] = max(found.get(whole, 0), topic.partition + 1)
    return found


def _accepted(path: str, newest: NewestRecords, partitions: Mapping[str, int], copied: CopiedRecords, era: Era) -> str:
    """What the records say then."""
    name = path.removeprefix(f"{paths.NAMES}/")
    if name == path:
        if path.startswith(f"{paths.STORAGE_COOKIES}/"):
            return "the storage node stays a member, and what else its cookie said is lost"
        return "nothing is set there, so the defaults hold, and a namespace has no grants"
    count = partitions.get(name, 0)
    if not count:
        return "the name leads to the topic that has ledgers of this name, if there is one"
    deleted = set(newest.tombstones)
    ids = [topic_id for topic_id, record in copied.topics.items() if record.name == name and topic_id not in deleted]
    made = blake2b(f"{era.restore_id}/{name}".encode(), digest_size=16).hexdigest()
    newest.inferred[name] = NameRecord(ids[-1] if ids else TopicId(made), count)
    return (
        f"it has {count} partitions, because {name}-partition-{count - 1} is the highest that exists; it may have had "
        "more, without any message"
    )
