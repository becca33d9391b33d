"""Topics by their state, from all topic owners: each is asked once for each page."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from oncelog.core.errors import OncelogError
from oncelog.core.topic.folded_rows import Row, folded
from oncelog.core.topic.listing import ListPosition, ListQuery, page_of
from oncelog.metadata.owners.owner_calls import STATES_TIMEOUT_MS, OwnerCalls
from oncelog.metadata.owners.owners import Owners
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.owner_codec import LIST_TOPICS
from oncelog.wire import observation_pb2 as pb


class OwnedTopic(NamedTuple):
    """One topic as its owner describes it. summary: further fields, see `topic_owner/observe/topic_listing.py`.

    Partitions that are folded have no topic_id; owner None: they have several."""

    place: ListPosition
    topic_id: str
    owner: LiveOwner | None
    owner_epoch: int
    summary: Row

    @property
    def key(self) -> str:
        return self.topic_id or self.place.topic


class TopicList(NamedTuple):
    """One page. total: topics in this state, at the owners that answered. silent: why the others did not."""

    topics: Sequence[OwnedTopic]
    total: int
    next_place: ListPosition | None
    silent: Sequence[tuple[LiveOwner, str]]


_OLDER = "this owner is of an older version, which cannot filter by name, sort or fold: upgrade it"


class TopicLister:
    """Used by the REST interface, which checks rights."""

    def __init__(self, owners: Owners, calls: OwnerCalls) -> None:
        self._owners = owners
        self._calls = calls

    async def page(self, query: ListQuery, *, limit: int, after: ListPosition | None) -> TopicList:
        """limit: of the page. after: where it begins; None: with the first topic.

        An owner that does not answer within STATES_TIMEOUT_MS delays the page by that and no more.
        """
        request = pb.ListTopicsRequest(
            state=query.state or "", namespace=query.namespace, limit=limit + 1, name=query.name,
            sort=query.sort or "", folded=query.folded,
        )  # fmt: skip
        if after is not None:
            request.after_rank, request.after_topic = after
        await self._owners.refresh()
        owners = self._owners.live
        found: list[OwnedTopic] = []
        silent: list[tuple[LiveOwner, str]] = []
        total = 0
        for owner, answer in await self._calls.ask_each(owners, LIST_TOPICS, request, timeout_ms=STATES_TIMEOUT_MS):
            if isinstance(answer, OncelogError):
                silent.append((owner, answer.message))
                continue
            if answer.version < 1 and (query.name or query.sort or query.folded):
                silent.append((owner, _OLDER))
                continue
            total += answer.total
            found += [
                OwnedTopic(
                    ListPosition(each.rank, each.topic),
                    each.topic_id,
                    owner,
                    each.owner_epoch,
                    json.loads(each.summary_json),
                )
                for each in answer.topics
            ]
        topics, next_place = page_of(_folded(found), limit)
        return TopicList(topics, total, next_place, silent)


def _folded(found: Iterable[OwnedTopic]) -> Iterator[OwnedTopic]:
    """With the partitions of one topic, which each owner has folded for itself, as one row."""
    of_topic: dict[str, list[OwnedTopic]] = {}
    for each in found:
        if each.topic_id:
            yield each
        else:
            of_topic.setdefault(each.place.topic, []).append(each)
    for rows in of_topic.values():
        owner = rows[0].owner if len(rows) == 1 else None
        yield rows[0]._replace(owner=owner, summary=folded(row.summary for row in rows))
