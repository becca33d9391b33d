"""What a command would lose, in words: messages of topics, backlogs of subscriptions, rights. Read over REST before the
question is asked.
"""

from collections.abc import Callable, Iterator, Mapping

from oncelog.cli.admin.rest import AdminApi, Answer, number
from oncelog.cli.admin.rest_paths import namespace_path, permissions_path, topic_path
from oncelog.core.counted import counted
from oncelog.core.errors import Retriable, TopicNotFound

#: Subscriptions that are named, those with the largest backlogs; the others are counted.
NAMED_MAX = 5


def of_topic(api: AdminApi, topic: str) -> str:
    """`10 messages and 1 subscription: billing (backlog 7)`, of all partitions. Raises TopicNotFound."""
    record = api.get(topic_path(topic))
    partitions = number(record.get("partitions")) if isinstance(record, dict) else 0
    paths = [topic_path(f"{topic}-partition-{number}") for number in range(partitions)] or [topic_path(topic)]
    return _known(lambda: _content([stats for path in paths for stats in _stats(api, path, missing=bool(partitions))]))


def of_subscription(api: AdminApi, path: str) -> str:
    """`7 messages`: its backlog in all partitions. path: of the subscription. Raises SubscriptionNotFound."""
    return _known(lambda: counted(_backlog(_values(api.get(path))), "message"))


def of_namespace(api: AdminApi, namespace: str) -> str:
    """`the rights of 2 roles: billing, importer`. Raises NamespaceNotFound."""
    api.get(namespace_path(namespace))
    rights = api.get(permissions_path(namespace))
    roles = sorted(rights) if isinstance(rights, dict) else []
    if not roles:
        return "the rights of no role"
    return f"the rights of {counted(len(roles), 'role')}: {_named(roles)}"


def _stats(api: AdminApi, path: str, *, missing: bool) -> Iterator[Mapping[str, object]]:
    """Of one topic. missing: it may be a partition that was never used, which has nothing."""
    try:
        answer = api.get(f"{path}/stats")
    except TopicNotFound:
        if not missing:
            raise
        return
    if isinstance(answer, dict):
        yield answer


def _content(topics: list[Mapping[str, object]]) -> str:
    if any("message_count" not in each for each in topics):
        return "an unknown number of messages (no topic owner serves it now)"
    messages = sum(number(each["message_count"]) - number(each.get("first_index")) for each in topics)
    backlogs: dict[str, int] = {}
    for each in topics:
        subscriptions = each.get("subscriptions")
        for name, stats in (subscriptions if isinstance(subscriptions, dict) else {}).items():
            backlogs[name] = backlogs.get(name, 0) + _backlog([stats])
    if not backlogs:
        return f"{counted(messages, 'message')} and no subscription"
    worst = sorted(backlogs, key=lambda name: (-backlogs[name], name))
    named = _named([f"{name} (backlog {backlogs[name]:,})" for name in worst])
    return f"{counted(messages, 'message')} and {counted(len(backlogs), 'subscription')}: {named}"


def _known(look: Callable[[], str]) -> str:
    try:
        return look()
    except Retriable as error:
        return f"an unknown number of messages ({error.message})"


def _backlog(subscriptions: list[object]) -> int:
    return sum(number(each.get("msg_backlog")) for each in subscriptions if isinstance(each, dict))


def _values(answer: Answer) -> list[object]:
    return list(answer.values()) if isinstance(answer, dict) else []


def _named(names: list[str]) -> str:
    """The first of the names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
