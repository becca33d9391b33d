"""The systems that are compared: what feeds each of them, what runs, and where its effects are counted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class System:
    """name: of the table of results. program: its file, or "relay". feed: what gets the numbers. observe: of systems
    whose effects are messages, the program that counts them. restores: whether it has a store that can be restored."""

    name: str
    program: str
    feed: str
    observe: str = ""
    restores: bool = True

    @property
    def own(self) -> bool:
        return self.program.startswith("oncelog") or self.program == "relay"

    @property
    def counted(self) -> str:
        return "observed.effects" if self.observe else "public.effects"


SYSTEMS = (
    System("Oncelog, SqlEffects", "oncelog_sql", "oncelog"),
    System("aiokafka, commit after the effect", "kafka_commit", "kafka"),
    System("aiokafka, offsets in PostgreSQL", "kafka_offsets", "kafka"),
    System("Redis Streams, table of ids", "redis_dedup", "redis"),
    System("Celery with Redis, acks_late", "celery_late", "celery"),
    System("Oncelog, TopicEffects", "oncelog_topic", "oncelog", "oncelog_observe", restores=False),
    System("aiokafka, transactions", "kafka_transactions", "kafka", "kafka_observe", restores=False),
    System("Oncelog, outbox relay", "relay", "oncelog-outbox", "oncelog_observe"),
    System("confluent-kafka, polled outbox", "kafka_outbox", "kafka-outbox", "kafka_observe"),
)
