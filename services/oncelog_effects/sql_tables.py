"""The tables of `SqlEffects`: who the store is, and one row for each source (effect name, topic, partition)."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Integer,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    func,
)

from oncelog_effects.table_creation import SharedMetaData

#: What this version writes, and the lowest version of a library that reads it. `sql_schema` has the rules.
#: 2 has pending_dead. A library that does not know it would take a message that was given up for applied.
SCHEMA_VERSION = 2
READS_FROM = 2
#: Kinds of a source.
ORDERED = 1
_ID = BigInteger().with_variant(Integer, "sqlite")


class EffectsTables:
    """The tables in one schema of a database."""

    def __init__(self, *, schema: str | None, prefix: str) -> None:
        self.metadata = SharedMetaData(schema=schema)
        self.meta = Table(
            f"{prefix}_effects_meta",
            self.metadata,
            Column("one", SmallInteger, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
            Column("schema_version", Integer, nullable=False),
            Column("reads_from", Integer, nullable=False),
            Column("store_id", String(32), nullable=False),
            # Written and rolled back by each process that begins: proves that the store rolls back.
            Column("probe", String(32), nullable=False, server_default=""),
            Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        )
        self.effects = Table(
            f"{prefix}_effects",
            self.metadata,
            Column("id", _ID, Identity(), primary_key=True),
            Column("effect", String(255), nullable=False),
            Column("topic_id", String(32), nullable=False),
            Column("partition_no", Integer, nullable=False),
            Column("topic", String(800), nullable=False),
            Column("subscription", String(255), nullable=False),
            # Empty: claimed by a program of version 1 only.
            Column("cluster_id", String(64), nullable=False, server_default="", info={"since": 2}),
            Column("kind", SmallInteger, nullable=False),
            Column("subscription_no", BigInteger, nullable=False),
            Column("redo_epoch", BigInteger, nullable=False),
            Column("generation", BigInteger, nullable=False),
            Column("claim", String(32), nullable=False),
            Column("position", BigInteger, nullable=False),
            Column("last_message", String(120), nullable=False),
            Column("pending_dead", BigInteger, nullable=True, info={"since": 2}),
            Column("applied", BigInteger, nullable=False, server_default="0"),
            Column("claimed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
            Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
            UniqueConstraint("effect", "topic_id", "partition_no"),
            # Each apply writes the row anew: room for it on its page keeps the index as it is.
            postgresql_with={"fillfactor": 50},
        )
