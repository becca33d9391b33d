"""What several metadata services do together, as real processes: keys of the SDK and of HTTP publish, and sessions of
HTTP consume, while metadata services, an owner and Redis die."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import oncelog
from oncelog.core.errors import (
    IdempotencyKeyReused,
    InvalidArgument,
    MessageTooLarge,
)
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import idle
from tests.cluster.until import until
from tests.contract.stores.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

TOPIC = "/topics/persistent/public/default/orders"
KEYS = [f"order-{number}" for number in range(60)]
SENDERS = 8


#: One of several processes that publish the same keys.
WORKER = """
import asyncio, sys
import oncelog

async def main():
    async with await oncelog.connect(sys.argv[1]) as client:
        for number in range(int(sys.argv[2])):
            result = await client.publish("workers", b"%d" % number, idempotency_key=f"request-{number}")
            print(result.message_id)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="module")
def keyed_cluster(tmp_path_factory: pytest.TempPathFactory, redis: RedisProcess) -> Iterator[Cluster]:
    with Cluster.running(tmp_path_factory.mktemp("keyed"), metadata=2, redis_url=redis.url) as own:
        yield own


async def worker(url: str, count: int) -> list[str]:
    """The message ids that one process was told."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, url, str(count), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return told.decode().splitlines()


async def test_processes_that_share_keys_store_each_message_once(keyed_cluster: Cluster) -> None:
    """A request that several workers get is one message, and each of them is told the same position."""
    count = 20
    told = await asyncio.gather(*(worker(keyed_cluster.url, count) for _ in range(3)))
    assert len(set(told[0])) == count
    assert told == [told[0]] * 3
    async with await oncelog.connect(keyed_cluster.url) as client, await client.create_reader("workers") as reader:
        stored = [await reader.read_next() for _ in range(count)]
        assert not await reader.has_message_available()
    assert [str(message.message_id) for message in sorted(stored, key=lambda m: int(bytes(m.value)))] == told[0]


async def test_published_message_is_whole_and_its_key_belongs_to_it(keyed_cluster: Cluster) -> None:
    """As HTTP publish, whose keys they are. The largest value fits; arguments are checked before anything is sent."""
    async with await oncelog.connect(keyed_cluster.url) as client:
        extras: dict[str, Any] = {"key": "table-4", "event_time_ms": 7, "properties": {"guest": "Ada"}}
        first = await client.publish("orders-of-web", b"\x00\xff", idempotency_key='a "key" \\', **extras)
        again = await client.publish("orders-of-web", b"\x00\xff", idempotency_key='a "key" \\', **extras)
        assert (first.replayed, again.replayed, again.message_id) == (False, True, first.message_id)
        with pytest.raises(IdempotencyKeyReused) as reused:
            await client.publish("orders-of-web", b"other", idempotency_key='a "key" \\')
        assert reused.value.stored is False
        large = await client.publish("orders-of-web", bytes(MESSAGE_BYTES_MAX - 1_000), idempotency_key="large")
        with pytest.raises(MessageTooLarge):
            await client.publish("orders-of-web", bytes(MESSAGE_BYTES_MAX + 1), idempotency_key="larger")
        with pytest.raises(InvalidArgument) as refused:
            await client.publish("orders-of-web", b"a", idempotency_key="")
        assert refused.value.details["field"] == "idempotency_key"
        with pytest.raises(InvalidArgument, match="UTF-8"):
            await client.publish("orders-of-web", b"a", idempotency_key="k", key=b"\xff")
        async with await client.create_reader("orders-of-web") as reader:
            message, second = await reader.read_next(), await reader.read_next()
            assert not await reader.has_message_available()
        assert (bytes(message.value), message.key, message.event_time_ms, dict(message.properties)) == (
            b"\x00\xff", b"table-4", 7, {"guest": "Ada"},
        )  # fmt: skip
        assert (message.message_id, second.message_id) == (first.message_id, large.message_id)


async def test_partitioned_topic_takes_keys(keyed_cluster: Cluster) -> None:
    """Messages of one key stay in one partition; the message id says which."""
    await keyed_cluster.change("PUT", "/admin/v2/persistent/public/default/split/partitions", json=3)

    def publish(client: oncelog.Client) -> list[oncelog.PublishResult]:
        return [client.publish("split", b"v", idempotency_key=f"split-{n}", key=f"guest-{n % 4}") for n in range(12)]

    def both() -> tuple[list[oncelog.PublishResult], list[oncelog.PublishResult]]:
        with oncelog.Client(keyed_cluster.url) as client:
            return publish(client), publish(client)

    first, again = await asyncio.to_thread(both)
    assert [each.message_id for each in again] == [each.message_id for each in first]
    assert [(each.replayed, other.replayed) for each, other in zip(first, again, strict=True)] == [(False, True)] * 12
    places = [each.message_id.partition for each in first if each.message_id is not None]
    assert places == places[:4] * 3
    async with await oncelog.connect(keyed_cluster.url) as client, await client.create_reader("split") as reader:
        stored = {(await reader.read_next()).message_id for _ in range(12)}
        assert not await reader.has_message_available()
    assert stored == {each.message_id for each in first}


async def test_publish_goes_on_while_redis_restarts(keyed_cluster: Cluster, redis: RedisProcess) -> None:
    """The outcome of the calls in flight is unknown for a while; with the same key they are repeated, and stored
    once."""
    async with await oncelog.connect(keyed_cluster.url) as client:
        for number in range(5):
            await client.publish("restarted", b"%d" % number, idempotency_key=f"restart-{number}")
        redis.kill(once=idle)
        calls = [
            asyncio.ensure_future(client.publish("restarted", b"%d" % n, idempotency_key=f"restart-{n}"))
            for n in range(10)
        ]
        await refused(keyed_cluster)
        assert not any(call.done() for call in calls)
        redis.start()  # in this thread: the guard ends it with the thread that started it
        results = await asyncio.gather(*calls)
        async with await client.create_reader("restarted") as reader:
            stored = [await reader.read_next() for _ in range(10)]
            assert not await reader.has_message_available()
        assert {each.message_id for each in stored} == {each.message_id for each in results}
        assert sorted(bytes(each.value) for each in stored) == [b"%d" % n for n in range(10)]


async def refused(cluster: Cluster) -> None:
    """Each service refuses later requests, again and again: it has tried Redis for those before, and answered them."""
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=False) as http:
        for number in range(6):
            answer = await post(http, cluster.serving(f"metadata-{number % 2 + 1}", "http"), f"late-{number}")
            assert answer.status_code == 503, answer.text


async def post(http: httpx.AsyncClient, address: str, key: str) -> httpx.Response:
    body = {"messages": [{"value": f"{key} a"}, {"value": f"{key} b"}]}
    return await http.post(f"http://{address}{TOPIC}", json=body, headers={"Idempotency-Key": key})


async def repeated(http: httpx.AsyncClient, address: str, key: str) -> list[dict[str, Any]]:
    """Repeat until a response arrives, like a client whose request failed."""

    async def tried() -> list[dict[str, Any]]:
        answer = await post(http, address, key)
        assert answer.status_code in {200, 409, 503, 504}, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"] if answer.status_code == 200 else []
        return messages

    return await until(tried, 40, every_s=0.2, waiting_for=f"the answer for {key}")


async def read(url: str, count: int) -> list[tuple[str, str]]:
    """(value, message id) of all messages."""
    async with await oncelog.connect(url) as client:
        last = await client.last_message_id("orders")
        assert last is not None
        reader = await client.create_reader("orders")
        found: list[tuple[str, str]] = []
        while not found or found[-1][1] != str(last):
            message = await reader.read_next()
            found.append((bytes(message.value).decode(), str(message.message_id)))
        assert len(found) >= count
        return found


@pytest.mark.hazard("key-without-message")
async def test_keys_survive_a_killed_publishing_process(keyed_cluster: Cluster) -> None:
    """kill -9 with requests in flight. Every key is repeated at the other replica, and each message is read back
    once."""
    cluster = keyed_cluster
    first, second = (cluster.serving(f"metadata-{number}", "http") for number in (1, 2))
    answers: dict[str, list[dict[str, Any]]] = {}
    left = list(KEYS)

    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=False) as http:

        async def send() -> None:
            while left:
                key = left.pop(0)
                try:
                    answer = await post(http, first, key)
                except httpx.TransportError:
                    return  # it died while this request was in flight
                if answer.status_code == 200:
                    answers[key] = answer.json()["messages"]

        await repeated(http, second, "before")
        with cluster.held():
            senders = [asyncio.ensure_future(send()) for _ in range(SENDERS)]
            await cluster.kill("metadata-1", once=lambda: len(answers) >= 10)
            await asyncio.gather(*senders)
            assert 10 <= len(answers) < len(KEYS)
            final = {key: await repeated(http, second, key) for key in KEYS}
            url = f"oncelog://{cluster.serving('metadata-2')}"
            stored = await read(url, 2 * len(KEYS) + 2)
    values = Counter(value for value, _ in stored)
    assert values == Counter(f"{key} {half}" for key in ["before", *KEYS] for half in "ab")
    assert {key: final[key] for key in answers} == answers
    places = dict(stored)
    for key, messages in final.items():
        assert [each["message_id"] for each in messages] == [places[f"{key} a"], places[f"{key} b"]]


# --- HTTP consume -----------------------------------------------------------------------------------------------------

SESSIONS = "/topics/persistent/public/default/consumed/subscription/billing/session"
CONSUMED = 120


@dataclass
class SessionClient:
    """A program that consumes over HTTP, as its author would write it: it repeats what has failed, and opens another
    session when its own is gone."""

    http: httpx.AsyncClient
    addresses: list[str]
    path: str = ""
    sessions: int = 0
    received: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    acked_again: list[str] = field(default_factory=list)

    async def ask(self, method: str, part: str, **body: Any) -> httpx.Response | None:
        """None: not answered, or to be repeated. Each request goes to the next address."""
        self.addresses.append(self.addresses.pop(0))
        try:
            answer = await self.http.request(method, f"http://{self.addresses[0]}{part}", json=body or None)
        except httpx.TransportError:
            return None
        if answer.status_code == 410:
            self.path = ""
        elif answer.status_code not in (429, 503, 504):
            assert answer.status_code == 200, answer.text
            return answer
        return None

    async def step(self) -> None:
        if not self.path:
            opened = await self.ask("POST", SESSIONS, ack_timeout=5, start="earliest", window=20)
            if opened is not None:
                self.path = f"{SESSIONS}/{opened.json()['session']}"
                self.sessions += 1
            return
        answer = await self.ask("GET", f"{self.path}/messages?max=5&wait=1")
        messages = {} if answer is None else {one["id"]: one["value"] for one in answer.json()["messages"]}
        self.received.update(messages.values())
        self.acked_again += [value for value in messages.values() if value in self.acked]
        if messages:
            settled = await self.ask("POST", f"{self.path}/acks", ids=list(messages))
            rows = [] if settled is None else settled.json()["ids"]
            self.acked |= {messages[row["id"]] for row in rows if row["durable"] is True}


async def test_http_consume_survives_a_killed_replica_and_a_killed_owner(keyed_cluster: Cluster) -> None:
    """Through both replicas in turn. Nothing that was acknowledged comes again, and nothing is lost."""
    cluster = keyed_cluster
    await cluster.healed()
    topic = "public/default/consumed"
    async with await oncelog.connect(cluster.url) as client, await client.create_producer("consumed") as producer:
        await producer.send_many([b"%d" % number for number in range(CONSUMED)])
    addresses = [cluster.serving(f"metadata-{number}", "http") for number in (1, 2)]
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=False) as http:
        program = SessionClient(http, addresses)

        async def consumed(count: int) -> None:
            async with asyncio.timeout(60):
                while len(program.acked) < count:
                    await program.step()

        await consumed(20)
        # The one that keeps the session: the first request went to the second address.
        await cluster.kill("metadata-2", once=idle)
        await consumed(60)
        assert program.sessions > 1
        await cluster.kill(await cluster.owner_of(topic), once=idle)
        await consumed(CONSUMED)
    assert program.acked == {str(number) for number in range(CONSUMED)} == set(program.received)
    assert program.acked_again == []

    async def done() -> bool:
        found = (await cluster.stats(topic)).get("subscriptions", {}).get("billing", {})
        return int(found.get("msg_backlog", -1)) == 0

    await until(done, 40, every_s=0.2, waiting_for="an empty backlog")
    await cluster.healed()
