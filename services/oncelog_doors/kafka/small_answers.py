"""Answers that need nothing of the cluster."""

from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.asking import Address
from oncelog_doors.kafka.codec import Body
from oncelog_doors.wire.kafka_tables import REQUESTS

#: The only one.
NODE_ID = 0
_GROUP = 0


def api_versions(*, known: bool) -> Body:
    """What is offered. known: False: the client has asked in a version that is not, and asks again in one that is."""
    keys = [
        {"api_key": REQUESTS[api].key, "min_version": versions.first, "max_version": versions.last}
        for api, versions in KNOWN.items()
    ]
    return {"error_code": ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION, "api_keys": keys}


def find_coordinator(asked: Body, broker: Address) -> Body:
    """The one broker coordinates every group. Transactions are not offered, by a code after which no client tries
    again: a retriable one would let it hang (hazard transactions-wanted)."""
    if asked.get("key_type", _GROUP) == _GROUP:
        return {"node_id": NODE_ID, "host": broker.host, "port": broker.port}
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return {"error_code": code, "error_message": "transactions are not offered", "node_id": -1, "host": "", "port": -1}


def describe_acls() -> Body:
    """Clients that guess the version of a broker by what it offers look for this request."""
    return {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": "rights of roles are not told as ACLs"}
