"""The task of a worker of a process pool, in a module that new processes import fast."""

import oncelog


def publish_from_worker(url: str) -> bool:
    with oncelog.Client(url) as client, client.create_producer("pool") as producer:
        return not producer.send(b"x").duplicate
