"""`oncelog admin producers`: what is asked of the REST interface, and what is shown."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

import oncelog
from oncelog.cli.app import app
from oncelog.core.errors import ProducerFenced
from tests.cluster.cli.recorded_rest import RecordingServer
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.kills import idle

TOPIC = "/admin/v2/persistent/public/default/orders"


def row(name: str, pid: int, topic: str = "public/default/orders", **fields: object) -> dict[str, object]:
    return {
        "topic": topic, "name": name, "producer_id": pid, "generation": 3, "role": "checkout", "mode": "monotonic",
        "connected": True, "connected_from": "10.42.0.117:51234", "accepted": 1_000_000, "persisted": 1_000_000,
        "last_activity_ms": 1_772_000_000_000, "idle_ms": 720_000, "expires_ms": 604_800_000, "duplicates": 1,
        "stale": 0, "unverified": 0, "recent_batches_count": 2, "recent_floor": -1, "memory_bytes": 900, **fields,
    }  # fmt: skip


def admin(rest: RecordingServer, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["admin", "producers", *words, "--admin-url", rest.url], env={"COLUMNS": "80"})
    return result.exit_code, result.stdout, result.stderr


def answers(rest: RecordingServer, query: str, producers: list[dict[str, object]], following: str | None) -> None:
    rest.answers[f"{TOPIC}/producers?{query}"] = (200, {"producers": producers, "next_after": following})


def test_list_fits_the_line_and_says_where_it_goes_on(rest: RecordingServer) -> None:
    answers(rest, "limit=2", [row("till-1", 1), row("till-2", 2, connected_from=None, expires_ms=None)], "0:2")
    code, shown, _ = admin(rest, "list", "orders", "--limit", "2")
    lines = shown.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert "next_after  0:2" in lines
    heading = next(number for number, line in enumerate(lines) if line.startswith("name"))
    assert lines[heading].split() == ["name", "gen", "persisted", "idle", "expires", "from"]
    assert lines[heading + 1].split() == ["till-1", "3", "1000000", "12", "min", "7", "d", "10.42.0.117:51234"]
    assert lines[heading + 2].split() == ["till-2", "3", "1000000", "12", "min", "-", "-"]


def test_list_asks_for_pages_until_it_has_enough(rest: RecordingServer) -> None:
    """A page may be empty. With -o json: all of them, and where to go on."""
    answers(rest, "name_prefix=t&limit=3", [row("till-1", 1)], "0:7")
    answers(rest, "name_prefix=t&limit=2&after=0%3A7", [], "0:9")
    answers(rest, "name_prefix=t&limit=2&after=0%3A9", [row("till-2", 12)], None)
    code, shown, _ = admin(rest, "list", "orders", "--prefix", "t", "--limit", "3", "-o", "json")
    answer: dict[str, Any] = json.loads(shown)
    assert code == 0
    assert ([each["name"] for each in answer["producers"]], answer["next_after"]) == (["till-1", "till-2"], None)


def test_filters_are_asked_for(rest: RecordingServer) -> None:
    """Durations have units; without a session is not the same as any."""
    words = ["--role", "checkout", "--not-connected", "--idle-longer-than", "30d", "--expires-within", "12h"]
    query = "role=checkout&connected=false&idle_ms=2592000000&expires_within_ms=43200000&limit=100&after=0%3A5"
    answers(rest, query, [], None)
    code, shown, _ = admin(rest, "list", "orders", *words, "--after", "0:5")
    assert (code, shown.strip()) == (0, "no producers")
    for wrong in ("soon", "-1"):
        code, _, said = admin(rest, "list", "orders", "--idle-longer-than", wrong)
        assert code != 0
        assert "idle-longer-than" in said


def test_partitions_are_a_column(rest: RecordingServer) -> None:
    parts = [row("till-1", 1, f"public/default/orders-partition-{number}") for number in (0, 3)]
    answers(rest, "limit=100", parts, None)
    _, shown, _ = admin(rest, "list", "orders")
    lines = shown.splitlines()
    assert lines[0].split()[0] == "part"
    assert [line.split()[0] for line in lines[1:]] == ["0", "3"]
    assert max(map(len, lines)) <= 80


def test_one_producer_is_shown_by_any_name(rest: RecordingServer) -> None:
    rest.answers[f"{TOPIC}/producers/a%2Fb%20c"] = (200, [row("a/b c", 1)])
    code, shown, _ = admin(rest, "show", "orders", "a/b c")
    assert code == 0
    assert "connected_from" in shown
    code, shown, _ = admin(rest, "show", "orders", "a/b c", "-o", "json")
    assert json.loads(shown) == [row("a/b c", 1)]


def changes(rest: RecordingServer) -> list[str]:
    return [f"{method} {path}" for method, path, _ in rest.asked if method != "GET"]


@pytest.mark.parametrize(
    ("option", "verb", "asked"),
    [((), "delete", "DELETE {}/producers/7"), (("--expire",), "expire", "POST {}/producers/7/expire")],
)
def test_removal_says_what_it_means_and_names_the_id(
    rest: RecordingServer, option: tuple[str, ...], verb: str, asked: str
) -> None:
    """The id that was looked up, also if another producer has the name when the request arrives."""
    rest.answers[f"{TOPIC}/producers/till-1"] = (200, [row("till-1", 7)])
    code, _, said = admin(rest, "delete", "orders", "till-1", *option)
    assert (code, changes(rest)) == (1, [])
    assert f"nothing was done: this would {verb} producer till-1 (id 7) of orders" in said
    assert "the log forgets its sequence ids up to 1,000,000" in said
    assert "What its program sends again is stored again" in said
    assert "It is connected from 10.42.0.117:51234: without --force this is refused" in said
    code, _, said = admin(rest, "delete", "orders", "till-1", *option, "--force")
    assert "It is connected from 10.42.0.117:51234, and is fenced" in said
    assert admin(rest, "delete", "orders", "till-1", *option, "--force", "--yes")[0] == 0
    assert changes(rest) == [f"{asked.format(TOPIC)}?force=true"]


def test_removal_warns_of_names_that_programs_of_oncelog_use(rest: RecordingServer) -> None:
    rest.answers[f"{TOPIC}/producers/mirror%2Fx"] = (200, [row("mirror/x", 7, connected=False)])
    code, _, said = admin(rest, "delete", "orders", "mirror/x")
    assert code == 1
    assert "The name is of a service or program of Oncelog" in said
    assert "connected" not in said


def test_removal_wants_one_partition(rest: RecordingServer) -> None:
    parts = [row("till-1", number, f"public/default/orders-partition-{number}") for number in (1, 2)]
    rest.answers[f"{TOPIC}/producers/till-1"] = (200, parts)
    code, _, said = admin(rest, "delete", "orders", "till-1", "--yes")
    assert (code, changes(rest)) == (1, [])
    assert "2 partitions of orders have producer till-1: name one, as orders-partition-N" in said


@pytest.mark.asyncio
async def test_deleted_producer_is_gone_for_every_later_owner(cluster: Cluster) -> None:
    """Through the command line and REST, on real processes: the owner is killed right after its answer."""
    topic = "producers-deleted"
    one = f"{rest_path(topic)}/producers"

    def run(*words: str) -> tuple[int, str]:
        done = cluster.run("admin", "producers", *words)
        return done.returncode, (done.stdout + done.stderr).decode()

    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer(topic, producer_name="till-1")
        await producer.send(b"x", sequence_id=7)
        code, shown = await asyncio.to_thread(run, "list", topic, "-o", "json")
        (listed,) = json.loads(shown)["producers"]
        assert (code, listed["name"], listed["persisted"], listed["connected"]) == (0, "till-1", 7, True)
        assert listed["connected_from"].startswith("127.0.0.1:")
        code, shown = await asyncio.to_thread(run, "delete", topic, "till-1", "--yes")
        assert code == 1
        assert "is connected: stop its program first" in shown
        code, shown = await asyncio.to_thread(run, "delete", topic, "till-1", "--yes", "--force")
        assert (code, shown.strip()) == (0, f"deleted producer till-1 of {topic}")
        await cluster.kill(await cluster.owner_of(topic), once=idle)
        with pytest.raises(ProducerFenced):
            await producer.send(b"y", sequence_id=8)
        assert (await cluster.get(one)) == {"producers": [], "next_after": None}
        answer = await cluster.request("DELETE", f"{one}/{listed['producer_id']}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        again = await client.create_producer(topic, producer_name="till-1")
        assert again.last_sequence_id == -1
        assert not (await again.send(b"x", sequence_id=7)).duplicate
        (shown_again,) = await cluster.get(f"{one}/till-1")
        assert shown_again["producer_id"] != listed["producer_id"]


def test_messages_of_a_producer_that_is_gone_keep_its_id(cluster: Cluster) -> None:
    """Its name is not known any more: to the SDK, the command and REST. It does not look like a message that was stored
    without deduplication, and the id finds all that it stored."""
    topic = "producers-gone"

    async def stored() -> int:
        async with (
            await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client,
            await client.create_producer(topic, producer_name="till-1") as producer,
        ):
            await producer.send(b"x", sequence_id=7)
        (listed,) = (await cluster.get(f"{rest_path(topic)}/producers"))["producers"]
        return int(listed["producer_id"])

    async def seen() -> tuple[oncelog.Message, dict[str, Any]]:
        async with (
            await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client,
            await client.create_reader(topic, start=oncelog.EARLIEST) as reader,
        ):
            message = await reader.read_next(timeout=DEADLINE_S)
        (shown,) = (await cluster.get(f"{rest_path(topic)}/messages?index=0"))["messages"]
        return message, shown

    producer_id = asyncio.run(stored())
    assert cluster.run("admin", "producers", "delete", topic, "till-1", "--yes", "--force").returncode == 0
    message, shown = asyncio.run(seen())
    assert (message.producer_name, message.producer_id) == (None, producer_id)
    for told in (json.loads(cluster.run("read", topic, "-o", "json").stdout), shown):
        assert (told["producer_name"], told["producer_id"]) == (None, producer_id)


@pytest.mark.asyncio
async def test_history_says_who_fenced_whom_after_the_owner_was_killed(cluster: Cluster) -> None:
    """A new instance of the name fences the former one; the next owner still knows when and from where, also of the
    first opening at an owner that has just started."""
    topic = "producers-history"
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        shown: list[list[dict[str, Any]]] = []
        for _ in range(3):
            await client.create_producer(topic, producer_name="till-1")
            epoch = (await cluster.stats(topic))["owner_epoch"]
            await cluster.kill(await cluster.owner_of(topic), once=idle)
            await cluster.served_by_another(topic, epoch)
            (found,) = await cluster.get(f"{rest_path(topic)}/producers/till-1")
            shown.append(found["generations"])
    assert [[each["generation"] for each in one] for one in shown] == [[1], [2, 1], [3, 2, 1]]
    assert (shown[1][1:], shown[2][1:]) == (shown[0], shown[1])
    newest, former, _ = shown[2]
    assert (newest["fenced_generation"], former["fenced_generation"]) == (2, 1)
    assert newest["at_ms"] >= former["at_ms"] > 1_700_000_000_000
    assert all(each["from"].startswith("127.0.0.1:") for each in (newest, former))
    done = await asyncio.to_thread(cluster.run, "admin", "producers", "show", topic, "till-1")
    assert "generations:" in done.stdout.decode()
