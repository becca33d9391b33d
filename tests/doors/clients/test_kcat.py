"""kcat at a door, the command line client of librdkafka: what it publishes, reads, lists and finds."""

import asyncio
import json
import shutil
import subprocess

import pytest

from tests.doors.clients.door_clusters import servers, small_kafka_cluster
from tests.doors.kafka.raw_client import raw_client

__all__ = ["servers", "small_kafka_cluster"]

DEADLINE_S = 60.0
LINES = [f"line {number}" for number in range(1_000)]
#: {name of a codec: its number in a record batch}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
#: Of the attributes in a record batch.
_ATTRIBUTES_AT, _CODEC_BITS = 22, 7


def kcat(servers: str, *words: str, given: str = "") -> str:
    """What it prints. It must end well."""
    program = shutil.which("kcat")
    assert program is not None, "kcat is missing: `make tools` installs it"
    done = subprocess.run(
        [program, "-b", servers, *words], input=given, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def first_codec(servers: str, topic: str) -> int:
    """The codec of the first record batch of partition 0."""
    async with raw_client(int(servers.rpartition(":")[2])) as client:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
        topics = [{"topic": topic, "partitions": [partition]}]
        asked = {"max_wait_ms": 10_000, "min_bytes": 1, "max_bytes": 1_000_000, "topics": topics}
        answer = await client.ask("Fetch", 11, asked)
    return bytes(answer["responses"][0]["partitions"][0]["records"])[_ATTRIBUTES_AT] & _CODEC_BITS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_lines_of_a_file_are_read_as_they_were_published(servers: str, codec: str, idempotence: str) -> None:
    """With the compression that the user has chosen. It goes on behind a read that ends at the end of the topic."""
    topic, reads = f"lines-{codec}-{idempotence}", ("-o", "beginning", "-e", "-q")
    # All lines in one batch: librdkafka sends a batch as it is that compression makes no smaller.
    publish = ("-P", "-t", topic, "-z", codec, "-X", f"enable.idempotence={idempotence}", "-X", "linger.ms=1000")
    kcat(servers, *publish, given="\n".join(LINES))
    assert kcat(servers, "-C", "-t", topic, *reads).splitlines() == LINES
    assert asyncio.run(first_codec(servers, topic)) == CODECS[codec]
    kcat(servers, *publish, given="one more")
    assert kcat(servers, "-C", "-t", topic, "-o", "-2", "-e", "-q").splitlines() == [LINES[-1], "one more"]


def test_keys_headers_and_null_values(servers: str) -> None:
    """An empty value is null with -Z."""
    kcat(servers, "-P", "-t", "keys", "-K:", "-Z", "-H", "shop=web", given="k1:v1\nk2:\n")
    found = [json.loads(line) for line in kcat(servers, "-C", "-t", "keys", "-e", "-q", "-J").splitlines()]
    answer = [(each["offset"], each["key"], each["payload"], each["headers"]) for each in found]
    assert answer == [(0, "k1", "v1", ["shop", "web"]), (1, "k2", None, ["shop", "web"])]


def test_lists_and_questions(servers: str) -> None:
    """`-L` lists a topic, `-Q` finds offsets: by time, the first one and the end; nothing is newer than tomorrow."""
    kcat(servers, "-P", "-t", "asked", given="\n".join(LINES))
    listed = json.loads(kcat(servers, "-L", "-J"))
    assert [each["id"] for each in listed["brokers"]] == [0]
    one = [{"partition": 0, "leader": 0, "replicas": [{"id": 0}], "isrs": [{"id": 0}]}]
    assert {each["topic"]: each["partitions"] for each in listed["topics"]}["asked"] == one
    for asked, offset in ((-2, 0), (-1, len(LINES)), (1, 0), (4_000_000_000_000, -1)):
        assert kcat(servers, "-Q", "-t", f"asked:0:{asked}") == f"asked [0] offset {offset}\n"
    assert kcat(servers, "-C", "-t", "asked", "-o", "s@1", "-c", "1", "-q") == f"{LINES[0]}\n"
