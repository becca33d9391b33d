"""Calls of Pulsar's REST that mean nothing here, each with what to do instead."""

import re

#: (part of a path below /admin, what is not offered, what to do).
_PARTS: tuple[tuple[str, str, str], ...] = (
    ("/functions", "functions are", "read the topic with a program, and write effects with oncelog_effects"),
    ("/sources", "sources are", "publish with a program or `oncelog produce`"),
    ("/sinks", "sinks are", "read the topic with a program or a job on Spark"),
    ("/packages", "packages are", "install programs where they run"),
    ("/worker", "functions are", "read the topic with a program"),
    ("/transactions", "transactions over topics are", "write effects with oncelog_effects"),
    ("/non-persistent/", "topics without storage are", "use persistent://"),
    ("/schemas", "this call about schemas is", "get and upload schemas, or test their compatibility"),
    ("/bookies", "bookies are", "storage nodes are listed by `oncelog admin`"),
    ("/resource-quotas", "resource quotas are", "use backlog quotas"),
    ("/resourcegroups", "resource groups are", "use backlog quotas"),
    ("/ns-isolation-policy", "clusters of several parts are", "run several clusters"),
    ("/compaction", "compaction is", "use the compaction job on Spark"),
    ("/terminate", "terminating a topic is", "revoke the right to produce"),
    ("/offload", "offloading to other storage is", "use the export job on Spark"),
    ("/shadowTopics", "shadow topics are", "read the topic itself"),
    ("/replication", "replication among clusters is", "use `oncelog mirror`"),
    ("/permissions/subscription", "permissions of subscriptions are", "grant `consume` in the namespace"),
    ("/clusters", "changing the list of clusters is", "there is one cluster"),
    ("/brokers", "brokers are", "topic owners are listed by `oncelog admin`"),
    ("/broker-stats", "brokers are", "see the metrics of topic owners"),
)
_TOPIC_PERMISSIONS = re.compile(r"/admin/v2/persistent/[^/]+/[^/]+/[^/]+/permissions(/.*)?")


def unoffered(path: str) -> tuple[str, str]:
    """What is not offered, with its verb, and what to do instead. path: one that no route serves."""
    if _TOPIC_PERMISSIONS.fullmatch(path):
        return "permissions of single topics are", "grant permissions in the namespace"
    below = path.removeprefix("/admin")
    found = next(((what, instead) for part, what, instead in _PARTS if part in below), None)
    return found or ("this call of Pulsar's REST is", "docs/pulsar.md lists the commands that work")
