"""`pulsar-admin` 4.0, as Maven has it, against the REST port of a door: the commands of docs/pulsar.md."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import oncelog
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import client
from tests.cluster.programs import Running, running
from tests.doors.clients.java.java_programs import HERE, JavaPrograms

__all__ = ["client", "cluster"]

ONE, PARTS = "persistent://acme/web/one", "persistent://acme/web/parts"
WEB = "acme/web"
READ, WITH_SCHEMA = "persistent://public/default/read", "persistent://public/default/with-schema"


class Result(NamedTuple):
    """exit: code of the command."""

    output: str
    exit: int

    @property
    def json(self) -> Any:
        return json.loads(self.output)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("admin")
    with claim_port("127.0.0.1") as door, claim_port("127.0.0.1") as rest:
        ports = {"pulsar_port": port_of(door), "pulsar_rest_port": port_of(rest)}
        with Cluster.running(directory, storage_nodes=1, owners=1, **ports) as own:
            yield own


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> JavaPrograms:
    return JavaPrograms.compiled(HERE / "admin_4/pom.xml", tmp_path_factory.mktemp("classes"))


def _file_of(directory: Path, commands: Sequence[str]) -> str:
    directory.mkdir()
    (directory / "commands").write_text("\n".join(commands))
    return str(directory / "commands")


def _has_run(program: Running, number: int) -> bool:
    return sum(line.startswith("= ") for line in program.text().splitlines()) > number


async def run(admin: JavaPrograms, cluster: Cluster, directory: Path, *commands: str) -> list[Result]:
    """The commands, one after another."""
    arguments = (_file_of(directory, commands), cluster.status()["pulsar_rest_url"])
    name = "org.apache.pulsar.admin.cli.AdminCommands"
    async with running(admin.start(directory / "log", name, *arguments)) as program:
        for number in range(len(commands)):
            await program.reaches(partial(_has_run, program, number), f"the end of {commands[number]!r}")
        await program.ends()
    kept = [line for line in program.text().splitlines() if not line.startswith(("[", "Exit code"))]
    results = []
    for part in "\n".join(kept).split("$ ")[1:]:
        _, *output, end = part.rstrip("\n").split("\n")
        results.append(Result("\n".join(output), int(end.removeprefix("= "))))
    assert len(results) == len(commands)
    return results


async def answers(admin: JavaPrograms, cluster: Cluster, directory: Path, *expected: tuple[str, str | None]) -> None:
    """Each command ends well with this output; None: it prints nothing."""
    commands = [command for command, _ in expected]
    found = await run(admin, cluster, directory, *commands)
    assert dict(zip(commands, found, strict=True)) == {command: Result(output or "", 0) for command, output in expected}


RETENTION = '{\n  "retentionTimeInMinutes" : 180,\n  "retentionSizeInMB" : 1024\n}'


@pytest.mark.asyncio
async def test_commands(cluster: Cluster, client: oncelog.AsyncClient, admin: JavaPrograms, tmp_path: Path) -> None:
    await answers(
        admin, cluster, tmp_path / "policies",
        ("clusters list", "standalone"),
        ("brokers healthcheck", "ok"),
        ("tenants create acme", None),
        ("tenants list", "acme\npublic"),
        (f"namespaces create {WEB}", None),
        ("namespaces list acme", WEB),
        (f"namespaces set-deduplication {WEB} --disable", None),
        (f"namespaces set-deduplication {WEB} --enable", None),
        (f"namespaces get-deduplication {WEB}", "true"),
        (f"namespaces set-retention {WEB} --time 3h --size 1G", None),
        (f"namespaces get-retention {WEB}", RETENTION),
        (f"namespaces set-message-ttl {WEB} --messageTTL 120", None),
        (f"namespaces get-message-ttl {WEB}", "120"),
        (f"namespaces set-backlog-quota {WEB} --limit 10M --policy producer_exception", None),
        (f"namespaces set-backlog-quota {WEB} --limitTime 36 --type message_age --policy producer_exception", None),
        (f"namespaces remove-backlog-quota {WEB}", None),
        (f"namespaces get-backlog-quotas {WEB}",
         "message_age    BacklogQuotaImpl(limit=-1, limitSize=-1, limitTime=36, policy=producer_exception)"),
        (f"namespaces remove-backlog-quota {WEB} --type message_age", None),
        # Else the messages below would expire while the commands run.
        (f"namespaces remove-message-ttl {WEB}", None),
        (f"namespaces grant-permission {WEB} --role shop --actions produce,consume", None),
        # One replaces the other. The tool prints two rights in any order.
        (f"namespaces grant-permission {WEB} --role shop --actions consume", None),
        (f"namespaces permissions {WEB}", "shop    [consume]"),
        (f"namespaces revoke-permission {WEB} --role shop", None),
        (f"namespaces set-dispatcher-pause-on-ack-state-persistent {WEB}", None),
        (f"namespaces get-dispatcher-pause-on-ack-state-persistent {WEB}", "true"),
        (f"topics create {ONE}", None),
        (f"topics create-partitioned-topic {PARTS} --partitions 2", None),
        (f"topics list {WEB}", f"{PARTS}-partition-0\n{PARTS}-partition-1\n{ONE}"),
        (f"topics update-partitioned-topic {PARTS} --partitions 3", None),
        (f"topics get-partitioned-topic-metadata {PARTS}", '{\n  "partitions" : 3,\n  "deleted" : false\n}'),
        (f"topics list-partitioned-topics {WEB}", PARTS),
        (f"topics lookup {ONE}", cluster.status()["pulsar_url"]),
        (f"topicPolicies set-deduplication {ONE} --disable", None),
        (f"topicPolicies get-deduplication {ONE}", "false"),
        (f"topicPolicies remove-deduplication {ONE}", None),
    )  # fmt: skip
    async with await client.create_producer(ONE, producer_name="shop") as producer:
        places = [(await producer.send(b"%d" % number, sequence_id=number)).message_id for number in range(5)]
        [stats, partitioned] = await run(
            admin, cluster, tmp_path / "stats", f"topics stats {ONE}", f"topics partitioned-stats {PARTS}"
        )
    assert stats.json["msgInCounter"] == 5
    assert stats.json["deduplicationStatus"] == "Enabled"
    assert [each["producerName"] for each in stats.json["publishers"]] == ["shop"]
    assert partitioned.json["metadata"]["partitions"] == 3
    at = ":".join(str(places[3]).split(":")[:2])
    await subscriptions(cluster, admin, tmp_path, at)
    await refusals(cluster, admin, tmp_path)
    await answers(
        admin, cluster, tmp_path / "end",
        (f"topics unload {ONE}", None),
        (f"topics delete {ONE}", None),
        (f"topics delete-partitioned-topic {PARTS}", None),
        (f"namespaces delete {WEB}", None),
        ("tenants delete acme", None),
        ("tenants list", "public"),
    )  # fmt: skip


async def subscriptions(cluster: Cluster, admin: JavaPrograms, directory: Path, at: str) -> None:
    """at: the place of the fourth of five messages."""

    runs = count()

    async def backlog() -> int:
        [stats] = await run(admin, cluster, directory / f"backlog-{next(runs)}", f"topics stats {ONE}")
        found: int = stats.json["subscriptions"]["s"]["msgBacklog"]
        return found

    one = f"{ONE} --subscription s"
    await answers(
        admin, cluster, directory / "subscription",
        (f"topics create-subscription {one} --messageId earliest", None),
        (f"topics subscriptions {ONE}", "s"),
        (f"topics update-subscription-properties {one} --property a=b", None),
        (f"topics get-subscription-properties {one}", '{"a":"b"}'),
        (f"topics skip {one} --count 1", None),
    )  # fmt: skip
    assert await backlog() == 4
    [peeked, internal] = await run(
        admin, cluster, directory / "peek", f"topics peek-messages {one}", f"topics stats-internal {ONE}"
    )
    assert "31" in peeked.output  # the second message, as hexadecimal digits
    assert peeked.exit == 0
    assert internal.json["state"] == "LedgerOpened"
    await answers(admin, cluster, directory / "clear", (f"topics clear-backlog {one}", None))
    assert await backlog() == 0
    await answers(admin, cluster, directory / "id", (f"topics reset-cursor {one} --messageId {at}", None))
    assert await backlog() == 2
    excluded = f"topics reset-cursor {one} --messageId {at} --exclude-reset-position"
    await answers(admin, cluster, directory / "excluded", (excluded, None))
    assert await backlog() == 1
    await answers(admin, cluster, directory / "time", (f"topics reset-cursor {one} --time 1h", None))
    assert await backlog() == 5
    await answers(admin, cluster, directory / "unsubscribe", (f"topics unsubscribe {one}", None))


async def refusals(cluster: Cluster, admin: JavaPrograms, directory: Path) -> None:
    expected = {
        "tenants create acme": "tenant acme already exists",
        "tenants create other --admin-roles x": "adminRoles: tenants have no administrators here",
        "namespaces create other/web": "there is no tenant other",
        f"topics create {ONE}": "topic acme/web/one already exists",
        f"topics stats {ONE}-2": "topic acme/web/one-2 does not exist",
        f"topics compact {ONE}": "compaction is not offered here",
        "functions list --tenant acme --namespace web": "functions are not offered here",
        f"namespaces delete {WEB}": "namespace acme/web",
    }
    found = await run(admin, cluster, directory / "refusals", *expected)
    for result, (command, reason) in zip(found, expected.items(), strict=True):
        assert (command, result.exit, reason in result.output) == (command, 1, True), result.output


@pytest.mark.asyncio
async def test_messages(cluster: Cluster, client: oncelog.AsyncClient, admin: JavaPrograms, tmp_path: Path) -> None:
    """Five single messages and a batch of two."""
    async with await client.create_producer(READ, producer_name="shop") as producer:
        places = [(await producer.send(b"%d" % number, sequence_id=number)).message_id for number in range(5)]
        values = [b"batch a", b"batch b"]
        sent = await producer.send_many(values, sequence_ids=[5, 6], keys=[b"k", b"\xff"], properties=[{"a": "b"}, {}])
    at = ":".join(str(places[3]).split(":")[:2])
    ledger, entry = at.split(":")
    batch = ":".join(str(sent.message_ids[0]).split(":")[:2])
    of_batch = "--ledgerId {} --entryId {}".format(*batch.split(":"))
    found = await run(
        admin, cluster, tmp_path / "messages",
        f"topics create-subscription {READ} --subscription p --messageId earliest",
        f"topics peek-messages {READ} --subscription p --count 7",
        f"topics get-message-by-id {READ} --ledgerId {ledger} --entryId {entry}",
        f"topics get-message-by-id {READ} {of_batch}",
        f"topics examine-messages {READ}",
        f"topics examine-messages {READ} --initialPosition earliest --messagePosition 6",
        f"topics get-message-id {READ} --datetime 2021-06-28T16:53:08Z",
        f"topics last-message-id {READ}",
        f"topics get-message-by-id {READ} --ledgerId {ledger} --entryId 999",
    )  # fmt: skip
    assert [each.exit for each in found] == [0, 0, 0, 0, 0, 0, 0, 0, 1], found
    peeked, by_id, whole, latest, sixth, at_time, last, unknown = [each.output for each in found[1:]]
    assert [hex_of(value) in peeked for value in (b"0", b"4", b"batch a", b"batch b")] == [True] * 4
    assert (peeked.count("Message ID: "), f"Batch Message ID: {batch}:1" in peeked) == (7, True)
    assert (f"Message ID: {at}" in by_id, hex_of(b"3") in by_id) == (True, True)
    # Of a batch, this command prints the first message only, also on Pulsar.
    assert (f"Batch Message ID: {batch}:0" in whole, hex_of(b"batch a") in whole) == (True, True)
    assert "X-Pulsar-num-batch-message    2\na    b" in whole
    assert (f"Batch Message ID: {batch}:1" in latest, hex_of(b"batch b") in latest) == (True, True)
    assert (f"Batch Message ID: {batch}:0" in sixth, "Properties:\na    b" in sixth) == (True, True)
    first = str(places[0]).split(":")
    assert [json.loads(at_time)[name] for name in ("ledgerId", "entryId")] == [int(each) for each in first[:2]]
    assert (f"{json.loads(last)['ledgerId']}:{json.loads(last)['entryId']}", json.loads(last)["batchIndex"]) == (
        batch,
        1,
    )
    assert "no message of topic public/default/read is stored at" in unknown


def hex_of(value: bytes) -> str:
    """As the tool prints it."""
    return " ".join(f"{each:02x}" for each in value)


@pytest.mark.asyncio
async def test_schemas(cluster: Cluster, client: oncelog.AsyncClient, admin: JavaPrograms, tmp_path: Path) -> None:
    await (await client.create_producer(WITH_SCHEMA)).close()
    definitions = [f'{{"type":"record","name":"{name}","fields":[]}}' for name in ("Order", "Refund")]
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for file, kind, definition in zip(files, ("AVRO", "AVRO", "JSON"), (*definitions, definitions[0]), strict=True):
        file.write_text(json.dumps({"type": kind, "schema": definition, "properties": {"a": "b"}}))
    found = await run(
        admin, cluster, tmp_path / "schemas",
        f"schemas get {WITH_SCHEMA}",
        f"schemas upload {WITH_SCHEMA} --filename {files[0]}",
        f"schemas upload {WITH_SCHEMA} --filename {files[1]}",
        f"schemas upload {WITH_SCHEMA} --filename {files[0]}",
        f"schemas upload {WITH_SCHEMA} --filename {files[2]}",
        f"schemas compatibility {WITH_SCHEMA} --filename {files[1]}",
        f"schemas compatibility {WITH_SCHEMA} --filename {files[2]}",
        f"schemas get {WITH_SCHEMA}",
        f"schemas get {WITH_SCHEMA} --version 0",
        f"schemas get {WITH_SCHEMA} --all-version",
        f"schemas delete {WITH_SCHEMA}",
    )  # fmt: skip
    assert [each.exit for each in found] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1], found
    none, _, _, _, other_type, _, _, newest, first, every, deleted = [each.output for each in found]
    assert "the topic has no schema" in none
    assert "of type JSON, and the topic has schemas of type AVRO" in other_type
    assert (json.loads(newest)["version"], "Refund" in newest) == (1, True)
    assert ("Order" in first, "Refund" in first) == (True, False)
    assert [name in every for name in ("Order", "Refund")] == [True, True]
    assert "schemas are not deleted" in deleted
