"""REST requests, which the gRPC port carries (`Rest`), and their answers."""

import json
from typing import Any
from urllib.parse import quote

from oncelog.client.network.problems import error_of_problem
from oncelog.core.errors import ServiceUnavailable
from oncelog.core.names import TopicName
from oncelog.wire.metadata_pb2 import RestAnswer


def path_of(topic: TopicName) -> str:
    """tenant/namespace/topic."""
    return "/".join(quote(part, safe="") for part in (topic.tenant, topic.namespace, topic.local_full))


def headers_of(answer: RestAnswer) -> dict[str, str]:
    return {header.name: header.value for header in answer.headers}


def body_of(answer: RestAnswer) -> Any:
    """The JSON of a good answer. Raises the error that another one tells."""
    if answer.status != 200:
        error = error_of_problem(answer.status, answer.body, retry_after=headers_of(answer).get("retry-after"))
        raise error or ServiceUnavailable(f"a metadata service answered {answer.status} without a reason")
    return json.loads(answer.body)
