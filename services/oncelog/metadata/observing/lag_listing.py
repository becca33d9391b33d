"""The lags of subscriptions, from all topic owners: each is asked once for each page."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oncelog.core.errors import OncelogError
from oncelog.core.topic.lag_listing import LagQuery, lag_position
from oncelog.core.topic.listing import NAMED_MAX, ListPosition, UncountedTopics, page_of
from oncelog.metadata.owners.owner_calls import STATES_TIMEOUT_MS, OwnerCalls
from oncelog.metadata.owners.owners import Owners
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.owner_codec import LIST_LAGS
from oncelog.wire import observation_pb2 as pb


class OwnedLag(NamedTuple):
    """One subscription as the owner of its topic describes it. summary: see `topic_owner/observe/lag_listing.py`."""

    place: ListPosition
    topic: str
    topic_id: str
    subscription: str
    owner: LiveOwner
    owner_epoch: int
    summary: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.topic_id} {self.subscription}"


class LagList(NamedTuple):
    """One page. total, backlog_messages, oldest_unacked_ms: of all subscriptions for which the query holds, at the
    owners that answered; waiting: topics that these do not serve yet. silent: why the others did not."""

    lags: Sequence[OwnedLag]
    total: int
    backlog_messages: int
    oldest_unacked_ms: int | None
    next_place: ListPosition | None
    waiting: UncountedTopics
    silent: Sequence[tuple[LiveOwner, str]]


class LagLister:
    """Used by the REST interface, which checks rights."""

    def __init__(self, owners: Owners, calls: OwnerCalls) -> None:
        self._owners = owners
        self._calls = calls

    async def page(self, query: LagQuery, *, limit: int, after: ListPosition | None) -> LagList:
        """limit: of the page. after: where it begins; None: with the first subscription.

        An owner that does not answer within STATES_TIMEOUT_MS delays the page by that and no more.
        """
        request = pb.ListLagsRequest(
            state=query.state or "", namespace=query.namespace, topic=query.topic, subscription=query.subscription,
            sort=query.sort, limit=limit + 1,
        )  # fmt: skip
        if after is not None:
            request.after_rank, request.after_name = after
        await self._owners.refresh()
        found: list[OwnedLag] = []
        silent: list[tuple[LiveOwner, str]] = []
        answered: list[pb.ListLagsAnswer] = []
        asked = self._calls.ask_each(self._owners.live, LIST_LAGS, request, timeout_ms=STATES_TIMEOUT_MS)
        for owner, answer in await asked:
            if isinstance(answer, OncelogError):
                silent.append((owner, answer.message))
                continue
            answered.append(answer)
            found += [_owned(owner, each) for each in answer.lags]
        lags, next_place = page_of(found, limit)
        oldest = [each.oldest_unacked_ms for each in answered if each.HasField("oldest_unacked_ms")]
        return LagList(
            lags,
            sum(each.total for each in answered),
            sum(each.backlog_messages for each in answered),
            min(oldest, default=None),
            next_place,
            UncountedTopics(
                sum(each.waiting for each in answered),
                sorted(name for each in answered for name in each.waiting_first)[:NAMED_MAX],
            ),
            silent,
        )


def _owned(owner: LiveOwner, lag: pb.ListedLag) -> OwnedLag:
    place = lag_position(lag.rank, lag.topic, lag.subscription)
    summary = json.loads(lag.summary_json)
    return OwnedLag(place, lag.topic, lag.topic_id, lag.subscription, owner, lag.owner_epoch, summary)
