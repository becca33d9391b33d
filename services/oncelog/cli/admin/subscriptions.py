"""`oncelog admin subscriptions`: subscriptions, their positions and backlogs."""

from typing import Annotated

import typer

from oncelog.cli.admin import losses
from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi, Answer, number
from oncelog.cli.admin.rest_paths import subscription_path, topic_path
from oncelog.cli.admin.stats import AllOption, subscription_facts
from oncelog.cli.admin.waiting import progress
from oncelog.cli.options import LOCAL_TIME, PropertyOption, properties_in
from oncelog.cli.read.start import parse_start
from oncelog.core.counted import counted
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import EARLIEST, LATEST, MessageId

_HELP = """Show and change the subscriptions of topics.

    oncelog admin subscriptions list orders

    oncelog admin subscriptions stats orders billing

    oncelog admin subscriptions seek orders billing --to 2026-01-31T12:00:00+01:00

Commands that skip messages or deliver them again say so and ask first; --yes confirms in advance. A change of a
partitioned topic applies to all its partitions. The rights `admin` and `consume` allow all commands."""

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
NameArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]
PLACE_HELP = (
    "earliest, latest, a message id (begins after it), or an ISO time (the first message stored at or after it). "
    f"{LOCAL_TIME}"
)

#: Letters of one request of a redrive.
REDRIVEN_AT_ONCE = 1_000
#: What happens to a message that is acknowledged for a subscription.
_NEVER = "they are not delivered any more"

subscriptions = typer.Typer(help=_HELP, no_args_is_help=True)


@admin_command(subscriptions, "list")
def list_subscriptions(api: AdminApi, topic: TopicArgument) -> Answer:
    """List the subscriptions of a topic."""
    return api.get(f"{topic_path(topic)}/subscriptions")


@admin_command(subscriptions, "stats")
def show_subscription(
    api: AdminApi, topic: TopicArgument, subscription: NameArgument, everything: AllOption = False
) -> Report:
    """Show the state of a subscription, its backlog and its consumers.

    oldest unacked: when the oldest message of the backlog was stored. held: messages that consumers have and have not
    acknowledged. --all also shows its position, counters, effects and consumers.

    With -o json: {topic: its statistics}, with one entry for each partition of a partitioned topic.
    """
    answer = api.get(subscription_path(topic, subscription))
    assert isinstance(answer, dict), "an object by the description of the call"
    shown: list[object] = [
        stats if everything or not isinstance(stats, dict) else subscription_facts(each, subscription, stats)
        for each, stats in answer.items()
    ]
    if len(shown) == 1 and isinstance(shown[0], dict):
        return Report(shown[0], answer)
    return Report(answer if everything else shown, answer)


@admin_command(subscriptions, "create")
def create_subscription(
    api: AdminApi,
    topic: TopicArgument,
    subscription: NameArgument,
    start: Annotated[str, typer.Option("--from", help=f"Where it begins: {PLACE_HELP}")] = "latest",
    from_index: Annotated[int | None, typer.Option("--from-index", min=0, help="Begin with this message.")] = None,
    properties: PropertyOption = None,
) -> Answer:
    """Create a subscription. Usually not needed: the first consumer creates it."""
    body: Answer = {
        "start": _place(start, from_index),
        "properties": dict[str, object](properties_in(properties or [])),
    }
    api.put(subscription_path(topic, subscription), body)
    return f"created subscription {subscription} of {topic}"


@admin_command(subscriptions, "peek")
def peek_message(
    api: AdminApi,
    topic: TopicArgument,
    subscription: NameArgument,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="1: the oldest message of the backlog.")] = 1,
) -> Answer:
    """Show a message of the backlog. Nothing is delivered or acknowledged."""
    return api.get(f"{subscription_path(topic, subscription)}/position/{number}")


@admin_command(subscriptions, "seek")
def seek(
    api: AdminApi,
    topic: TopicArgument,
    subscription: NameArgument,
    to: Annotated[str | None, typer.Option("--to", help=PLACE_HELP)] = None,
    index: Annotated[int | None, typer.Option("--to-index", min=0, help="Begin with this message.")] = None,
    redo: Annotated[
        bool, typer.Option("--redo", help="Let the messages take effect again in the store of their effects.")
    ] = False,
    yes: YesOption = False,
) -> Answer:
    """Begin again at a place. Connected consumers continue there. Says what is lost, and asks first.

    Acknowledged messages after the place are delivered again, and unacknowledged messages before it are skipped. If
    messages take effect in a database, effects that it already has are not repeated, except with --redo: see `oncelog
    effects redo --help` for the steps before it.
    """
    place = seek_place(to, index)
    where = f"index {index}" if to is None else to

    def loss() -> str:
        backlog = losses.of_subscription(api, subscription_path(topic, subscription))
        again = "are delivered again, and take effect again," if redo else "are delivered again,"
        return (
            f"let subscription {subscription} of {topic} begin again at {where}: all messages from there on {again} "
            f"and those of its backlog ({backlog}) that are before it are not delivered any more"
        )

    confirm(yes, loss, typed=subscription)
    api.post(f"{subscription_path(topic, subscription)}/resetcursor", place | ({"redo": True} if redo else {}))
    return f"subscription {subscription} of {topic} begins again"


def seek_place(to: str | None, index: int | None, *, option: str = "to") -> dict[str, object]:
    """The body of a seek. option: the name of that of `to`. Raises InvalidArgument unless exactly one is given."""
    if (to is None) == (index is None):
        raise InvalidArgument(f"give one of --{option} and --{option}-index", field=option)
    return _place(to or "", index)


@admin_command(subscriptions, "skip")
def skip_messages(
    api: AdminApi,
    topic: TopicArgument,
    subscription: Annotated[
        str | None,
        typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription. Default with --older-than: all."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Skip this number of the oldest messages.")
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option("--older-than", min=1, metavar="SECONDS", help="Skip messages that were stored longer ago."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Skip all messages that are stored now.")] = False,
    yes: YesOption = False,
) -> Answer:
    """Acknowledge messages of the backlog without a consumer. Says what is lost, and asks first."""
    if [count is not None, older_than is not None, everything].count(True) != 1:
        raise InvalidArgument("give one of --count, --older-than and --all", field="count")
    if subscription is None and older_than is None:
        raise InvalidArgument("--count and --all need SUBSCRIPTION", field="subscription")

    def loss() -> str:
        if subscription is None:
            backlog, whose = losses.of_topic(api, topic), f"all subscriptions of {topic}"
        else:
            backlog = losses.of_subscription(api, subscription_path(topic, subscription))
            whose = f"subscription {subscription}"
        if count is not None:
            return f"acknowledge the oldest {count} of {backlog} in the backlog of {subscription}: {_NEVER}"
        if older_than is not None:
            return f"acknowledge what is older than {older_than} s for {whose} ({backlog}): {_NEVER}"
        return f"acknowledge the whole backlog of {subscription}, {backlog}: {_NEVER}"

    confirm(yes, loss, typed=subscription or topic)
    if subscription is None:
        api.post(f"{topic_path(topic)}/all_subscription/expireMessages/{older_than}")
        return f"skipped messages of all subscriptions of {topic} that are older than {older_than} s"
    end = f"skip/{count}" if count is not None else f"expireMessages/{older_than}" if older_than else "skip_all"
    api.post(f"{subscription_path(topic, subscription)}/{end}")
    return f"skipped messages of subscription {subscription}"


@admin_command(subscriptions, "redrive")
def redrive_letters(
    api: AdminApi,
    topic: TopicArgument,
    subscription: NameArgument,
    count_max: Annotated[
        int | None, typer.Option("--max", min=1, help="Maximum number of letters. Default: all.")
    ] = None,
    dead_letter_topic: Annotated[
        str | None, typer.Option(help="Dead-letter topic of the consumers. Default: TOPIC-SUBSCRIPTION-DLQ.")
    ] = None,
    yes: YesOption = False,
) -> Answer:
    """Publish dead letters to their topic again, each once. Says what will happen, and asks first.

    A repeated command publishes no letter twice. Letters that cannot be published stay, are listed with the reason, and
    make the exit code 1. Also needs the right `produce`.
    """
    path = f"{subscription_path(topic, subscription)}/redrive"
    named: dict[str, object] = {} if dead_letter_topic is None else {"dead_letter_topic": dead_letter_topic}

    def loss() -> str:
        found = api.get(path, dead_letter_topic=dead_letter_topic)
        assert isinstance(found, dict), "an object by the description of the call"
        letters = counted(number(found["waiting"]), "message")
        up_to = "" if count_max is None else f"at most {count_max:,} of "
        return (
            f"publish {up_to}the dead letters of {subscription} to {topic} again ({letters} of "
            f"{found['dead_letter_topic']}): all subscriptions of {topic} get them"
        )

    confirm(yes, loss, typed=subscription)
    redriven = already = 0
    while True:
        room = REDRIVEN_AT_ONCE if count_max is None else min(REDRIVEN_AT_ONCE, count_max - redriven)
        answer = api.post(path, named | {"max": room})
        assert isinstance(answer, dict), "an object by the description of the call"
        done = number(answer["redriven"])
        redriven, already = redriven + done, already + number(answer["already"])
        if not answer["left"] or not done or redriven == count_max:
            break
        progress(f"{redriven:,} letters are published, {number(answer['left']):,} are left")
    answer |= {"redriven": redriven, "already": already}
    if answer["kept_count"]:
        raise NegativeAnswer(answer)
    return answer


@admin_command(subscriptions, "delete")
def delete_subscription(
    api: AdminApi,
    topic: TopicArgument,
    subscription: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Delete it even with connected consumers, which end.")] = False,
    yes: YesOption = False,
) -> Answer:
    """Delete a subscription. Its position is lost. Says what is lost, and asks first."""

    def loss() -> str:
        backlog = losses.of_subscription(api, subscription_path(topic, subscription))
        return f"delete subscription {subscription} of {topic} with its position and its backlog of {backlog}"

    confirm(yes, loss, typed=subscription)
    api.delete(subscription_path(topic, subscription) + ("?force=true" if force else ""))
    return f"deleted subscription {subscription} of {topic}"


@admin_command(subscriptions, "properties")
def properties_of(
    api: AdminApi, topic: TopicArgument, subscription: NameArgument, replacements: PropertyOption = None
) -> Answer:
    """Show the properties of a subscription; with --property, replace all of them."""
    path = f"{subscription_path(topic, subscription)}/properties"
    if replacements is None:
        return api.get(path)
    body: Answer = dict(properties_in(replacements))
    api.put(path, body)
    return f"set {len(replacements)} properties of subscription {subscription}"


def _place(text: str, index: int | None) -> dict[str, object]:
    """The body of a place."""
    if index is not None:
        return {"index": index}
    start = parse_start(text)
    if start in (EARLIEST, LATEST):
        return {"position": text}
    if isinstance(start, MessageId):
        return {"message_id": text}
    return {"time_ms": max(0, int(start.timestamp() * 1000))}
