"""A client of Kafka and its gateway, as one producer in mode EPOCHED: it numbers its records within epochs.

Numbers go through the wire: `unwrap` says which ids are meant. Now and then a careless client sends a late copy of what
an older epoch never had, which its gateway hands on unread, or a number before the first one.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from oncelog.core.errors import SequenceGap
from oncelog.core.formats import epoched_ids
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.epoched_ids import Numbered, NumberGap, epoch_of, first_of, number_of
from oncelog.core.ids import SequenceId
from oncelog.core.sdk.producer.pending_batches import BatchReady
from oncelog.core.sdk.producer.sequence_ids import pack_sequence_ids
from tests.simulation.clients.producer_client import Input, ProducerClient

_WRAP = 2**31
#: Of an epoch, in these runs.
_RECORDS_MAX = 12
_CARELESS = 0.08


def epochs_of(source: Input, seed: int) -> Input:
    """The same number of messages, in epochs. What is drawn here is drawn by a generator of its own."""
    rng = random.Random(f"{seed}/epochs of {source.name}")
    ids: list[int] = []
    never: list[int] = []
    epoch = rng.randint(0, 3)
    while len(ids) < len(source.ids):
        count = min(rng.randint(1, _RECORDS_MAX), len(source.ids) - len(ids))
        ids += range(first_of(epoch), first_of(epoch) + count)
        never += range(first_of(epoch) + count, first_of(epoch) + count + 3)
        epoch += rng.randint(1, 3)
    return replace(
        source, mode=SequenceMode.EPOCHED, ids=ids, holes=never, resumes=True, careless=_CARELESS, changes=False,
        automatic=False,
    )  # fmt: skip


class EpochedClient(ProducerClient):
    """One place for such a producer."""

    def _careless_ids(self, stale: list[int]) -> list[int]:
        rng = self.world.rng
        if rng.random() < 0.5:
            self.world.count("late copy of an older epoch sent")
            return [rng.choice(stale)]
        self.world.count("number before the first sent")
        return [first_of(epoch_of(self.core.numbers.highest)) + _WRAP - rng.randint(1, 9)]

    def _hand_over(self, ids: Sequence[int]) -> None:
        """ids: what the client means. Those of another epoch than the first one come later: a client raises its epoch
        when nothing of the former one is undecided, as its gateway lets it. One late copy at a time: each ends a
        session."""
        app, source, current = self.app, self.source, epoch_of(self.core.numbers.highest)
        if app.unanswered and epoch_of(ids[0]) > current:
            app.next -= len(ids)
            return
        if epoch_of(ids[0]) < current and any(epoch_of(sent[0]) < current for sent in app.unanswered.values()):
            return
        of_one = [each for each in ids if epoch_of(each) == epoch_of(ids[0])]
        app.next -= len(ids) - len(of_one)
        app.request += 1
        values = [source.value(each, self.instances) for each in of_one]
        app.unanswered[app.request] = of_one
        self.parts.history.invoked(app.instance, app.request, of_one, values)
        epoch, sequence = epoch_of(of_one[0]), number_of(of_one[0]) % _WRAP
        found = epoched_ids.unwrap(epoch, sequence, SequenceId(self.core.numbers.highest))
        match found:
            case NumberGap(expected):
                self._answered(app.request, SequenceGap("a gap", expected=expected or 0).of_send(stored=False))
                return
            case Numbered(first):
                sent: Sequence[int] = range(first, first + len(of_one))
            case _:
                sent = of_one  # the gateway has not heard of the higher epoch: the log judges
        self.handle(
            BatchReady(app.request, encode_values(values), len(sent), pack_sequence_ids(list(sent)), self.world.now)
        )
