"""Where one source of effects is: for people, probes and metrics."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SourceStatus:
    """One topic without partitions, or one partition.

    Attributes:
        topic, effect: the names.
        active: whether this process has the source; others wait until it ends.
        position: every message below it has taken effect, was given up, or was skipped by an operator; -1 before the
            first claim.
        next_index: where the topic ended when the log was asked last; -1: it was not.
        applied, filtered, dead_letters, skipped: messages that took effect here, that the store had already, that were
            given up, and that could not be read.
        rewound: messages whose effects the store had lost.
        claims: of the store.
        attempts: runs of the function.
        refusals: {name of the error: how often log or store have refused}.
        trouble: why nothing takes effect now; empty: nothing is known.
        stuck: the index of the message whose function fails now; None: none does.
        began_at: when the work in the store began that is under way: a transaction with the function, or a claim; 0:
            none is. Seconds since 1970, as the next one.
        applied_at: when a transaction was committed last; 0: none was.
        applied_publish_ms: when the message below the position was published, ms since 1970; 0: unknown.
        waiting_publish_ms: when the first message was published that is here and has not taken effect; 0: unknown.
        transactions, transaction_s: how many were committed, and the seconds that they took in all.
    """

    topic: str
    effect: str = ""
    active: bool = False
    position: int = -1
    next_index: int = -1
    applied: int = 0
    filtered: int = 0
    dead_letters: int = 0
    skipped: int = 0
    rewound: int = 0
    claims: int = 0
    attempts: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    stuck: int | None = None
    began_at: float = 0.0
    applied_at: float = 0.0
    applied_publish_ms: int = 0
    waiting_publish_ms: int = 0
    transactions: int = 0
    transaction_s: float = 0.0

    @property
    def lag_messages(self) -> int:
        """Messages of the topic that have not taken effect, as far as is known."""
        return max(0, self.next_index - self.position) if self.position >= 0 else 0

    def lag_s(self, now: float) -> float:
        """How long ago the first message was published that has not taken effect; 0 if there is none. If it is not here
        yet: since the one before it was published."""
        since_ms = self.waiting_publish_ms or self.applied_publish_ms
        return max(0.0, now - since_ms / 1000) if self.lag_messages and since_ms else 0.0

    def running_s(self, now: float) -> float:
        """For how long a transaction with the function, or a claim of the store, is under way; 0: none is."""
        return max(0.0, now - self.began_at) if self.began_at else 0.0
