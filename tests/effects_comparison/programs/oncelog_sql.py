"""Oncelog, SqlEffects."""

import os

from sqlalchemy import Connection, create_engine, text

import oncelog
from oncelog_effects import SqlEffects

engine = create_engine(os.environ["PG_URL"].replace("postgresql:", "postgresql+psycopg:"))


@oncelog.process(os.environ["TOPIC"], subscription="effects", effects=SqlEffects(engine, stall_timeout=2.0))
def book(message: oncelog.Message, connection: Connection) -> None:
    connection.execute(text("INSERT INTO effects VALUES (:n)"), {"n": int(message.value)})


if __name__ == "__main__":
    oncelog.run(book)
