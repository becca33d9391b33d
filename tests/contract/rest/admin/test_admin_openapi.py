"""The OpenAPI document is complete, consistent, and matches the served requests."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.metadata.rest.problems import MEDIA_TYPE
from tests.contract.rest.admin.admin_world import serving

pytestmark = pytest.mark.asyncio

#: All requests of the interface. A new one is a change of the interface.
CALLS = """
GET /admin/v2/brokers
GET /admin/v2/brokers/health
GET /admin/v2/clusters
GET /admin/v2/clusters/{cluster}/policies
DELETE GET POST /admin/v2/clusters/{cluster}/autoTopicCreation
DELETE GET POST /admin/v2/clusters/{cluster}/deduplication
DELETE GET POST /admin/v2/clusters/{cluster}/retention
DELETE GET POST /admin/v2/clusters/{cluster}/messageTTL
DELETE GET POST /admin/v2/clusters/{cluster}/backlogQuota
DELETE GET POST /admin/v2/clusters/{cluster}/dispatcherPauseOnAckStatePersistent
DELETE GET POST /admin/v2/clusters/{cluster}/maxUnackedRangesToPersist
DELETE GET POST /admin/v2/clusters/{cluster}/ackStateBytesMax
DELETE GET POST /admin/v2/clusters/{cluster}/assignedProducerExpiry
DELETE GET POST /admin/v2/clusters/{cluster}/chosenProducerExpiry
DELETE GET POST /admin/v2/clusters/{cluster}/producerLeaseExpiry
DELETE GET POST /admin/v2/clusters/{cluster}/maxKnownProducersPerTopic
DELETE GET POST /admin/v2/clusters/{cluster}/maxKnownProducersPerNamespace
DELETE GET POST /admin/v2/clusters/{cluster}/pulsarNewInstanceFences
DELETE GET POST /admin/v2/clusters/{cluster}/pulsarAcceptStale
DELETE GET POST /admin/v2/clusters/{cluster}/pulsarAcceptOtherContent
DELETE GET POST /admin/v2/clusters/{cluster}/pulsarRefuseUnverified
DELETE GET POST /admin/v2/clusters/{cluster}/pulsarAckUndecodable
DELETE GET POST /admin/v2/clusters/{cluster}/kafkaCompact
GET /admin/v2/dependencies
GET /admin/v2/events
GET /admin/v2/events/{tenant}/{namespace}
GET /admin/v2/proofs
GET /admin/v2/cluster/level
POST /admin/v2/cluster/finalize
GET POST /admin/v2/backups
GET PUT /admin/v2/backups/{name}
GET POST /admin/v2/cluster/restore
POST /admin/v2/cluster/records/rebuild
GET POST /admin/v2/cluster/drill
GET /admin/v2/cluster/rights
POST /admin/v2/cluster/rights/confirm
GET /admin/v2/me
GET /admin/v2/namespaces/{tenant}
DELETE GET PUT /admin/v2/namespaces/{tenant}/{namespace}
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/autoTopicCreation
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/deduplication
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/retention
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/messageTTL
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/backlogQuota
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/dispatcherPauseOnAckStatePersistent
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/maxUnackedRangesToPersist
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/ackStateBytesMax
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/assignedProducerExpiry
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/chosenProducerExpiry
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/producerLeaseExpiry
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/maxKnownProducersPerTopic
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/maxKnownProducersPerNamespace
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/pulsarNewInstanceFences
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/pulsarAcceptStale
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/pulsarAcceptOtherContent
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/pulsarRefuseUnverified
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/pulsarAckUndecodable
DELETE GET POST /admin/v2/namespaces/{tenant}/{namespace}/kafkaCompact
GET /admin/v2/namespaces/{tenant}/{namespace}/permissions
DELETE POST /admin/v2/namespaces/{tenant}/{namespace}/permissions/{role}
GET /admin/v2/persistent/{tenant}/{namespace}
GET /admin/v2/persistent/{tenant}/{namespace}/partitioned
DELETE GET PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplicationEnabled
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/retention
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/messageTTL
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/backlogQuota
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/dispatcherPauseOnAckStatePersistent
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/maxUnackedRangesToPersist
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/ackStateBytesMax
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/assignedProducerExpiry
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/chosenProducerExpiry
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/producerLeaseExpiry
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/maxKnownProducersPerTopic
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/pulsarNewInstanceFences
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/pulsarAcceptStale
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/pulsarAcceptOtherContent
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/pulsarRefuseUnverified
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/pulsarAckUndecodable
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/kafkaCompact
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/internalStats
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/stats
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/ledgers
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/policies
GET /admin/v2/namespaces/{tenant}/{namespace}/policies
DELETE GET POST PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}/partitions
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/producers/lease
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplication
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplication/snapshot
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplication/verify
DELETE GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/proof
DELETE /admin/v2/persistent/{tenant}/{namespace}/{topic}/truncate
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/trim
PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}/unload
GET /admin/v2/history
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/history
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/history
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/messages
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/messages/find
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/producers
DELETE GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/producers/{producer}
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/producers/{producer}/expire
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscriptions
DELETE GET PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}
GET PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/properties
PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/store
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscriptionStats
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/ackState
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/place
GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/position/{number}
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/skip/{count}
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/skip_all
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/resetcursor
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/resetcursor/{time_ms}
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/expireMessages/{seconds}
GET POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/redrive
POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/all_subscription/expireMessages/{seconds}
POST /admin/v2/producers/lease
GET /admin/v2/rates
GET /admin/v2/storage/ledgers
GET /admin/v2/storage/ledgers/{ledger_id}
POST /admin/v2/storage/ledgers/{ledger_id}/end
POST /admin/v2/storage/ledgers/{ledger_id}/verify
GET /admin/v2/storage/nodes
DELETE POST /admin/v2/storage/nodes/{incarnation}/decommission
GET /admin/v2/storage/nodes/{incarnation}/may-replace
GET /admin/v2/storage/repair
POST /admin/v2/storage/repair/{ledger_id}
GET /admin/v2/storage-nodes
GET /admin/v2/storage-nodes/{incarnation}
DELETE PUT /admin/v2/storage-nodes/{incarnation}/read-only
GET /admin/v2/tenants
DELETE GET PUT /admin/v2/tenants/{tenant}
GET /admin/v2/subscriptions
GET /admin/v2/subscriptions/{tenant}/{namespace}
GET /admin/v2/topics
GET /admin/v2/topics/{tenant}/{namespace}
GET /lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}
POST /topics/persistent/{tenant}/{namespace}/{topic}
POST /topics/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/session
DELETE /topics/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/session/{session}
GET /topics/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/session/{session}/messages
POST /topics/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/session/{session}/acks
POST /topics/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/session/{session}/nacks
"""


async def described() -> dict[str, Any]:
    async with serving() as admin:
        document: dict[str, Any] = await admin.get("/openapi.json")
        assert await admin.get("/openapi.json") == document
        return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


async def test_every_request_is_described() -> None:
    """With its purpose, its parameters, and its responses for success and for errors."""
    document = await described()
    found: dict[str, set[str]] = {}
    for call, operation in operations(document):
        method, path = call.split(" ")
        found.setdefault(path, set()).add(method)
        assert operation["summary"], call
        assert len(operation["description"]) > 5, call
        assert operation["tags"], call
        answered = (path.startswith("/topics/") and method != "DELETE") or path.endswith(
            (
                "/verify",
                "/end",
                "/trim",
                "/lease",
                "/snapshot",
                "/redrive",
                "/proof",
                "/finalize",
                "/backups",
                "/backups/{name}",
                "/confirm",
                "/rebuild",
            )
        )
        success = "200" if method == "GET" or answered else "204"
        if method == "POST" and path.endswith(("/restore", "/drill")):
            success = "202"
        assert sorted(operation["responses"]) == [success, "default"], call
        if success != "204":
            assert all(one["schema"] for one in operation["responses"][success]["content"].values()), call
        assert MEDIA_TYPE in operation["responses"]["default"]["content"], call
        named = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path)), call
        assert all(one["description"] and one["schema"] for one in operation.get("parameters", [])), call
    expected = {line.split()[-1]: set(line.split()[:-1]) for line in CALLS.strip().splitlines()}
    assert found == expected


async def test_openapi_document_is_valid() -> None:
    """Version, title, unique operation ids, and no dangling reference."""
    document = await described()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"]
    assert document["info"]["version"]
    assert document["info"]["description"]
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    schemas = document["components"]["schemas"]
    targets = set(references(document))
    assert targets == {f"#/components/schemas/{name}" for name in schemas}
    tags = {tag["name"] for tag in document["tags"]}
    assert {tag for _, operation in operations(document) for tag in operation["tags"]} == tags
    for schema in schemas.values():
        if "enum" in schema:
            continue
        assert schema["type"] == "object"
        assert set(schema.get("required", [])) <= set(schema["properties"])


async def test_described_requests_are_served() -> None:
    """None is answered as an unknown path or method."""
    async with serving() as admin:
        for call, _ in operations(await admin.get("/openapi.json")):
            method, path = call.split(" ")
            response = await admin.http.request(method, re.sub(r"{\w+}", "%21", path))
            assert response.status_code not in {404, 405}, call
