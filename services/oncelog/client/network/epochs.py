"""The highest owner_epoch that this client has seen of each topic, in any answer.

    epochs = OwnerEpochs()
    epochs.learn(topic_id, owner_epoch)          # from a look-up, a grant, an answer or a frame
    epochs.believe(topic_id, owner_epoch)        # the same, and NotOwner for an answer of a lower epoch
    with epochs.followed(topic_id, moved): ...   # `moved(owner_epoch)` is called at each newer epoch

Rules
- There is one registry for each client. Producers, readers and look-ups feed it, so a takeover that one of them notices
  is known to all of them at once.
- An answer with an epoch below the highest one seen is outdated, because its owner was deposed (hazard
  deposed-owner-refuses). It is refused, and the topic is looked up again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncelog.core.errors import NotOwner
from oncelog.core.ids import OwnerEpoch, TopicId

#: Called with the newer epoch.
Moved = Callable[[OwnerEpoch], None]


class OwnerEpochs:
    """{topic id: the highest owner_epoch seen}; a topic created again has another id, so no epoch ever goes back."""

    def __init__(self) -> None:
        self._highest: dict[TopicId, OwnerEpoch] = {}
        self._followers: dict[TopicId, list[Moved]] = {}

    def highest(self, topic_id: TopicId) -> OwnerEpoch:
        """The highest epoch seen; 0 when none was."""
        return self._highest.get(topic_id, OwnerEpoch(0))

    def learn(self, topic_id: TopicId, owner_epoch: OwnerEpoch) -> None:
        """Note the epoch of an answer; an older one changes nothing."""
        if owner_epoch <= self.highest(topic_id):
            return
        self._highest[topic_id] = owner_epoch
        for moved in tuple(self._followers.get(topic_id, ())):
            moved(owner_epoch)

    def believe(self, topic_id: TopicId, owner_epoch: OwnerEpoch) -> None:
        """Note the epoch of an answer. Raises NotOwner when a higher one was seen: the answer is outdated."""
        highest = self.highest(topic_id)
        if owner_epoch < highest:
            raise NotOwner(
                f"a deposed owner of epoch {owner_epoch} answered; epoch {highest} was seen: look the topic up again",
                owner_epoch=highest,
            )
        self.learn(topic_id, owner_epoch)

    @contextmanager
    def followed(self, topic_id: TopicId, moved: Moved) -> Iterator[None]:
        """In this context `moved` is called at each newer epoch of the topic."""
        followers = self._followers.setdefault(topic_id, [])
        followers.append(moved)
        try:
            yield
        finally:
            followers.remove(moved)
            if not followers and self._followers.get(topic_id) is followers:
                del self._followers[topic_id]
