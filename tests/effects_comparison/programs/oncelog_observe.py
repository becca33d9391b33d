"""python oncelog_observe.py TOPIC: each message of the topic, as a row of observed.effects. Never killed."""

import os
import sys

import psycopg

import oncelog

with (
    psycopg.connect(os.environ["PG_URL"], autocommit=True) as database,
    oncelog.Client(os.environ["ONCELOG_URL"]) as client,
    client.create_reader(sys.argv[1], start=oncelog.EARLIEST) as reader,
):
    for message in reader:
        database.execute("INSERT INTO observed.effects VALUES (%s)", [int(message.value)])
