"""Topics by their state, from all topic owners: each is asked once for each page."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from oncelog.core.errors import OncelogError
from oncelog.core.topic.listing import ListedState, ListPosition, page_of
from oncelog.metadata.coordination.owner_calls import STATES_TIMEOUT_MS, OwnerCalls
from oncelog.metadata.coordination.owners import Owners
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.owner_codec import LIST_TOPICS
from oncelog.wire import observation_pb2 as pb


class OwnedTopic(NamedTuple):
    """One topic as its owner describes it. summary: further fields, see `topic_owner/observe/topic_listing.py`."""

    place: ListPosition
    topic_id: str
    owner: LiveOwner
    owner_epoch: int
    summary: dict[str, Any]


class TopicList(NamedTuple):
    """One page. total: topics in this state, at the owners that answered. silent: why the others did not."""

    topics: Sequence[OwnedTopic]
    total: int
    next_place: ListPosition | None
    silent: Sequence[tuple[LiveOwner, str]]


class TopicLister:
    """Used by the REST interface, which checks rights."""

    def __init__(self, owners: Owners, calls: OwnerCalls) -> None:
        self._owners = owners
        self._calls = calls

    async def page(
        self, state: ListedState | None, *, namespace: str | None, limit: int, after: ListPosition | None
    ) -> TopicList:
        """namespace: None: all. limit: of the page. after: where it begins; None: with the worst topic.

        An owner that does not answer within STATES_TIMEOUT_MS delays the page by that and no more.
        """
        request = pb.ListTopicsRequest(state=state or "", namespace=namespace or "", limit=limit + 1)
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
        topics, next_place = page_of(found, limit)
        return TopicList(topics, total, next_place, silent)
