"""The ASGI application: all routes, error handling, and the OpenAPI description at /openapi.json."""

from typing import Any

from fastapi import Depends, FastAPI

from oncelog.metadata.console.login import HOME
from oncelog.metadata.console.routes import Console
from oncelog.metadata.dead_letters.redrive import Redrive
from oncelog.metadata.http_consume import routes as consume_routes
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService
from oncelog.metadata.http_publish import routes as publish_routes
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.metadata.http_publish.publish_body import values_of
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest import (
    cluster,
    cluster_level,
    deduplication,
    namespaces,
    partitions,
    permissions,
    policies,
    problems,
    producer_leases,
    producers,
    storage,
    storage_end,
    subscriptions,
    topic_lists,
    topics,
)
from oncelog.metadata.rest.access import Authentication, default_rule
from oncelog.metadata.rest.conditions import refuse_unread
from oncelog.metadata.rest.observing import routes as observing
from oncelog.metadata.rest.pages import Welcome, add_docs
from oncelog.metadata.rest.port.audit import Audit
from oncelog.metadata.rest.port.body_limits import ALL_BYTES_MAX, BODY_BYTES_MAX, VALUES_MAX, BodyLimit
from oncelog.metadata.rest.recovering import routes as recovering
from oncelog.metadata.rest.routers import add_routes
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing
from oncelog.runtime.security import OPEN, Security

_DESCRIPTION = f"""Administration of one Oncelog cluster.

A successful change answers 204 without a body. An error answers with a problem body (RFC 9457,
`{problems.MEDIA_TYPE}`) whose `code` is stable: 404 if something does not exist, 409 if it already exists or is in use,
412 for invalid names and for an If-Match that does not match, 413 for bodies above {BODY_BYTES_MAX} bytes, 422 for
other invalid input, 503 and 504 for errors that a retry may solve. If authentication is on, every request needs a token
(`Authorization: Bearer TOKEN`): 401 without a valid token, 403 without the required right.
"""
_TAGS = [
    {"name": "namespaces", "description": "Tenants and namespaces."},
    {"name": "topics", "description": "Topics and their state."},
    {
        "name": "producers",
        "description": "Producers of topics: what the log knows of them, and where they are connected.",
    },
    {"name": "subscriptions", "description": "Subscriptions of topics: their positions, backlogs and consumers."},
    {
        "name": "policies",
        "description": "Policies at cluster, namespace and topic level; the most specific level wins.",
    },
    {"name": "cluster", "description": "The cluster, its topic owners and its storage nodes."},
    {"name": "storage", "description": "Storage nodes, ledgers, and their repair. For superusers."},
    {"name": "publish", "description": "Publish messages over HTTP, each stored once."},
    {"name": "consume", "description": "Consume messages over HTTP: each is delivered until it is acknowledged."},
]


def new_app(
    coordination: Coordination,
    security: Security = OPEN,
    publisher: HttpPublishService | None = None,
    consumer: HttpConsumeService | None = None,
    redrive: Redrive | None = None,
    console: Console | None = None,
    *,
    audit: AuditLog | None = None,
    bodies_bytes_max: int = ALL_BYTES_MAX,
) -> FastAPI:
    """Build the application. The rules of routes are in `rest.access`.

    console None: there is none. audit None: its lines are in the log of the process only. bodies_bytes_max: maximum
    total size of the bodies of all requests in progress.
    """
    app = FastAPI(
        title="Oncelog admin",
        description=_DESCRIPTION,
        version="2",
        openapi_tags=_TAGS,
        docs_url=None,  # FastAPI's pages load scripts from other hosts; see `pages`
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(default_rule), Depends(refuse_unread)],
    )
    app.state.policies = lambda: coordination.policies
    app.state.copies = lambda: coordination.copies
    parts = (
        namespaces,
        permissions,
        partitions,
        topics,
        topic_lists,
        producers,
        producer_leases,
        deduplication,
        policies,
        cluster,
        cluster_level,
        observing,
        recovering,
    )
    for part in (*parts, storage, storage_end):
        add_routes(app, part.routes(coordination))
    add_routes(app, subscriptions.routes(coordination, redrive))
    add_routes(app, publish_routes.routes(publisher))
    add_routes(app, consume_routes.routes(consumer))
    add_docs(app)
    problems.install(app)
    publish_bytes_max = BODY_BYTES_MAX if publisher is None else publisher.limits.body_bytes_max
    others = {publish_routes.PREFIX: publish_bytes_max}
    values_max = VALUES_MAX if publisher is None else max(VALUES_MAX, values_of(publisher.limits))
    app.add_middleware(BodyLimit, others=others, all_bytes_max=bodies_bytes_max, values_max=values_max)
    app.add_middleware(Authentication, security=security)
    if console is not None:
        console.install(app)
    # The last middleware added runs first.
    app.add_middleware(Audit, log=audit or AuditLog(EventRing("metadata")))
    app.add_middleware(Welcome, console="" if console is None else HOME)
    generate = app.openapi

    def with_problems() -> dict[str, Any]:
        described = app.openapi_schema is not None
        document = generate()
        if not described:
            _describe_problems(document)
        return document

    app.openapi = with_problems  # type: ignore[method-assign]
    return app


def _describe_problems(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    schemas["Problem"] = problems.ProblemBody.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    for operation in operations:
        operation["responses"].pop("422", None)
    problems.document([operation["responses"] for operation in operations])
