"""A cluster of real processes with TLS and tokens: services connect to each other, and only authorized clients can."""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from oncelog.core.errors import OncelogError, PermissionDenied, Unauthenticated
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.contract.process.security_world import auth_environment, bearer, tls_environment, token
from tests.contract.rest.rest_guide import call_of
from tests.contract.rest.rest_story import ADMIN, CHECKOUT, Httpx, page, run_story, write_options
from tests.contract.stores.redis_process import RedisProcess
from tests.effects.cluster.mirroring import once
from tests.tidy.source import ROOT

TOPIC = "public/default/flights"
PERMISSIONS = "/admin/v2/namespaces/public/default/permissions"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def cluster(files: Path) -> Iterator[Cluster]:
    """With one process of each kind, and a Redis."""
    variables = tls_environment(files, names=["127.0.0.1"]) | auth_environment(files)
    settings = {name.removeprefix("ONCELOG_").lower(): value for name, value in variables.items()}
    shape = {"storage_nodes": 1, "owners": 1, "metadata": 1}
    with (
        RedisProcess.running(files / "redis") as redis,
        Cluster.running(files, **shape, redis_url=redis.url, **settings) as own,  # type: ignore[arg-type]
    ):
        own.rest = {"headers": bearer("root"), "verify": ssl.create_default_context(cafile=str(files / "ca.crt"))}
        yield own


def client_of(cluster: Cluster, files: Path, role: str | None, scheme: str = "oncelog+tls://") -> oncelog.AsyncClient:
    url = cluster.url.replace("oncelog+tls://", scheme)
    return oncelog.AsyncClient(
        url, token=None if role is None else token(role), tls_ca_file=files / "ca.crt", operation_timeout=DEADLINE_S
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("scheme", ["oncelog+tls://", "oncelog+proxy+tls://"])
async def test_only_authorized_clients_publish_and_read(cluster: Cluster, files: Path, scheme: str) -> None:
    """Publish, read, statistics: through metadata, an owner and a storage node, each of which requires a token.
    Behind the gateway the owner gets the caller's own token."""
    topic = f"{TOPIC}-{scheme.count('proxy')}"
    assert cluster.url.startswith("oncelog+tls://")
    await cluster.change("POST", f"{PERMISSIONS}/importer", json=["produce"])
    await cluster.change("POST", f"{PERMISSIONS}/auditor", json=["consume"])
    async with client_of(cluster, files, "importer", scheme) as client:
        async with await client.create_producer(topic, producer_name="importer") as producer:
            assert not (await producer.send(b"one", sequence_id=1)).duplicate
            assert (await producer.send(b"one", sequence_id=1)).duplicate
        assert not (await client.publish(f"{topic}-keyed", b"one", idempotency_key="one")).replayed
        reader = await client.create_reader(topic)
        with pytest.raises(PermissionDenied):
            await reader.read_next(timeout=DEADLINE_S)
    async with client_of(cluster, files, "auditor", scheme) as client:
        reader = await client.create_reader(topic)
        assert (await reader.read_next(timeout=DEADLINE_S)).value == b"one"
        with pytest.raises(PermissionDenied):
            await client.create_producer(topic, producer_name="importer")
        with pytest.raises(PermissionDenied, match="produce"):
            await client.publish(topic, b"two", idempotency_key="two")
    for role, error in ((None, Unauthenticated), ("stranger", PermissionDenied)):
        async with client_of(cluster, files, role, scheme) as client:
            with pytest.raises(error):
                await client.create_reader(topic)
    assert (await cluster.stats(topic))["message_count"] == 1


@pytest.mark.asyncio
async def test_client_without_tls_is_refused(cluster: Cluster) -> None:
    """Its token would be readable on the network."""
    plain = cluster.url.replace("oncelog+tls://", "oncelog://")
    async with oncelog.AsyncClient(plain, token=token("root"), operation_timeout=1) as client:
        with pytest.raises(OncelogError):
            await client.create_reader(TOPIC)


def test_commands_send_the_token_of_a_file(cluster: Cluster, files: Path) -> None:
    """With environment variables for the cluster, the CA and the token."""
    variables = {
        "ONCELOG_ADMIN_URL": f"https://{cluster.serving('metadata-1', 'http')}",
        "ONCELOG_TLS_CA_FILE": str(files / "ca.crt"),
        "ONCELOG_TOKEN_FILE": str(files / "root.token"),
    }

    def run(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        own = {name: value for name, value in os.environ.items() if not name.startswith("ONCELOG_")}
        return subprocess.run(
            [sys.executable, "-m", "oncelog.cli", *words],
            env=own | variables | more,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    granted = run("admin", "namespaces", "grant", "public/default", "clerk", "admin", "consume")
    assert granted.returncode == 0, granted.stderr
    shown = run("admin", "namespaces", "show", "public/default", "--permissions", "-o", "json")
    assert json.loads(shown.stdout)["clerk"] == ["admin", "consume"]
    (files / "clerk.token").write_text(token("clerk"))
    refused = run("admin", "tenants", "create", "t", ONCELOG_TOKEN_FILE=str(files / "clerk.token"))
    assert refused.returncode == 1
    assert "permission_denied" in refused.stderr


def test_examples_of_the_rest_guide_get_the_documented_responses(cluster: Cluster, tmp_path: Path) -> None:
    """In the order of the guide, as a new user would try them."""
    files = cluster.data.parent
    write_options(tmp_path, {ADMIN: token("root"), CHECKOUT: token(CHECKOUT)}, f'cacert = "{files / "ca.crt"}"')
    addresses = {"REST": f"https://{cluster.serving('metadata-1', 'http')}",
                 "HEALTH": f"http://{cluster.serving('metadata-1', 'health')}"}  # fmt: skip
    with Httpx(tmp_path) as send:
        assert run_story(send, addresses) == len(page()) > 80


@pytest.mark.asyncio
async def test_readme_publish_commands_store_each_message_once(cluster: Cluster) -> None:
    """Each command runs twice: the second response has the message ids of the first."""
    commands = re.findall(r"^    (curl (?:.*\\\n)*.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 2
    for call in (call_of(command, {}) for command in commands):
        path = call.url.removeprefix("localhost:8080")
        headers = dict(call.headers) | bearer("root")
        answers = [await cluster.request(call.method, path, content=call.body, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        first, second = ([one["message_id"] for one in answer.json()["messages"]] for answer in answers)
        assert first == second != []


@pytest.mark.asyncio
async def test_mirror_asks_for_its_rights_at_both_clusters_before_it_copies(
    cluster: Cluster, files: Path, source: oncelog.AsyncClient
) -> None:
    """Without `consume` at the target it would copy until its first restart, and stand then: it compares the last copy.
    The error names the cluster and the right."""
    await cluster.change("POST", f"{PERMISSIONS}/writer", json=["produce"])
    await cluster.change("POST", f"{PERMISSIONS}/looker", json=["consume"])
    topic = "mirrored-with-rights"
    async with await source.create_producer(topic) as producer:
        await producer.send(b"one")
    for role, words in (("writer", r"\(--to\).* `consume`"), ("looker", r"\(--to\).* `produce`")):
        async with client_of(cluster, files, role) as client:
            with pytest.raises(PermissionDenied, match=words):
                await once(source, client, topic)
    async with client_of(cluster, files, "root") as client, await client.create_producer(topic) as producer:
        await producer.send(b"two")
    async with client_of(cluster, files, "writer") as client:
        with pytest.raises(PermissionDenied, match=r"\(--from\).* `consume`"):
            await once(client, source, topic)
