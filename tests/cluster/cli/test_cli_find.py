"""`oncelog admin topics find`: what is asked of the REST interface, what is shown, and that a takeover keeps it."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

import oncelog
from oncelog.cli.app import app
from tests.cluster.cli.recorded_rest import served
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.kills import idle

TOPIC = "/admin/v2/persistent/public/default/orders"
WORDS = ["admin", "topics", "find", "orders", "--producer-name", "a/b &c", "--sequence-id", "7"]


def row(topic: str, **fields: object) -> dict[str, object]:
    refusals = {
        "counts": {"duplicate": 2}, "possible_counts": {}, "first_ms": 5, "last_ms": 6, "last_from": "10.42.0.117:5123",
        "since_ms": 1, "complete": True,
    }  # fmt: skip
    return {
        "topic": f"public/default/{topic}", "state": "stored", "explanation": "stored as 3:5:0, index 7",
        "message_id": "3:5:0", "index": 7, "recent_floor": -1, "refusals": refusals,
    } | fields  # fmt: skip


def test_find_shows_what_is_known_or_each_partition() -> None:
    """With -o json, all of it."""
    with served() as rest:
        path = f"{TOPIC}/messages/find?producer_name=a%2Fb+%26c&sequence_id=7"

        def shown(answer: list[dict[str, object]], *more: str) -> str:
            rest.answers[path] = (200, answer)
            result = CliRunner().invoke(app, [*WORDS, "--admin-url", rest.url, *more], env={"COLUMNS": "80"})
            assert result.exit_code == 0, result.stderr
            assert "json" in more or max(map(len, result.stdout.splitlines())) <= 80
            return result.stdout

        one = shown([row("orders")])
        assert "explanation" in one
        assert "stored as 3:5:0, index 7" in one
        assert "duplicate" in one
        nothing: dict[str, object] = {
            "counts": {},
            "possible_counts": {},
            "first_ms": None,
            "last_ms": None,
            "complete": True,
        }
        lacking = shown([row("orders", message_id=None, index=None, refusals=nothing)])
        assert not any(word in lacking for word in ("message_id", "None", "refusals", "complete"))
        parts = [row(f"orders-partition-{number}") for number in (0, 11)]
        assert [line.split()[0] for line in shown(parts).splitlines()[1:]] == ["0", "11"]
        assert json.loads(shown(parts, "-o", "json")) == parts
        assert json.loads(shown([row("orders")], "-o", "json")) == [row("orders")]
        assert shown([]).strip() == "no partition of the topic has been used"
        wrong = CliRunner().invoke(app, [*WORDS[:-1], "-3", "--admin-url", rest.url])
        assert wrong.exit_code == 2


@pytest.mark.asyncio
async def test_message_is_found_at_the_next_owner_too(cluster: Cluster) -> None:
    """Its place is in the log. What was refused is remembered by the process that refused it, and the answer says since
    when."""
    topic = "find-after-a-takeover"

    async def find(sequence_id: int) -> dict[str, Any]:
        words = ["admin", "topics", "find", topic, "--producer-name", "till", "--sequence-id", str(sequence_id)]
        done = await asyncio.to_thread(cluster.run, *words, "-o", "json")
        assert done.returncode == 0, done.stderr
        [found] = json.loads(done.stdout)
        return dict(found)

    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer(topic, producer_name="till")
        result = await producer.send(b"one", sequence_id=7)
        await producer.send(b"two", sequence_id=9)
        assert (await producer.send(b"one", sequence_id=7)).duplicate
        before = await find(7)
        assert (before["state"], before["message_id"], before["index"]) == ("stored", str(result.message_id), 0)
        assert before["refusals"]["counts"] == {"duplicate": 1}
        epoch = (await cluster.stats(topic))["owner_epoch"]
        await cluster.kill(await cluster.owner_of(topic), once=idle)
        await cluster.served_by_another(topic, epoch)
        after = await find(7)
        assert {**after, "refusals": None} == {**before, "refusals": None}
        assert (after["refusals"]["counts"], after["refusals"]["complete"]) == ({}, True)
        assert after["refusals"]["since_ms"] > before["refusals"]["last_ms"]
        assert [(await find(number))["state"] for number in (8, 10)] == ["never_stored", "not_stored"]
        page = await cluster.get(f"/admin/v2/persistent/public/default/{topic}/messages?limit=1")
        assert ([each["value"] for each in page["messages"]], page["previous_index"]) == (["two"], 0)
