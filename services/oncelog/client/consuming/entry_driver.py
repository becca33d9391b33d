"""The shell of a session of whole entries."""

from collections.abc import Callable, Sequence

from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.network.network import Network
from oncelog.core.acks.changes import IndexRange
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.entries import EntrySession
from oncelog.core.sdk.consumer.events import (
    ClientLives,
    ConsumerEffect,
    ConsumerSettings,
    EntryWanted,
    GiveBackWanted,
    MessageRange,
    PermitsGiven,
    ReportTakenBack,
    ReportWanted,
    RestartWanted,
)


class EntryDriver(ConsumerDriver):
    """One EntrySession on the network."""

    core: EntrySession
    _new_session = EntrySession

    def __init__(
        self,
        settings: ConsumerSettings,
        topic: TopicName,
        network: Network,
        *,
        arrived: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        """arrived, changed: as of ConsumerDriver."""
        super().__init__(settings, topic, network, arrived=arrived, changed=changed, unreadable=lambda _: None)
        #: what the owner has taken back; whoever reports it empties this
        self.taken_back: list[IndexRange] = []
        #: whether the owner has asked for the client; whoever answers sets it to False
        self.is_wanted = False

    def take_entry(self) -> tuple[MessageRange, ...]:
        """The messages of one entry, as `take`."""
        if self.names.missing:
            return ()
        self.feed(EntryWanted())
        handed, self._handed = self._handed, ()
        return handed

    def holds(self, runs: Sequence[MessageRange]) -> bool:
        """Whether these messages, which were taken, are all still held, in this delivery."""
        held = self.core.messages.begun
        return not any(self.is_void(run.seek_epoch, run.generation) or held.gaps(run.first, run.last) for run in runs)

    @property
    def held(self) -> tuple[IndexRange, ...]:
        """What was taken and is not settled."""
        return tuple(self.core.messages.begun)

    @property
    def held_counts(self) -> dict[int, int]:
        """{index: how often it was delivered}, of what is held, those above 1."""
        return self.core.messages.held_counts()

    def permit(self, total: int) -> None:
        self.feed(PermitsGiven(total))

    def restart(self) -> None:
        """Give back what is held and what waits, and get it again in order."""
        self.feed(RestartWanted())

    def client_lives(self) -> None:
        """The client is there."""
        self.feed(ClientLives())

    def give_back(self, *, counts: bool) -> None:
        """End the session. counts: the oldest message that is held counts one delivery."""
        self.feed(GiveBackWanted(counts))

    def _perform(self, effects: list[ConsumerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, ReportTakenBack):
                self.taken_back += effect.ranges
            elif isinstance(effect, ReportWanted):
                self.is_wanted = True
        super()._perform(effects)
