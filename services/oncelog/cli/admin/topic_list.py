"""`oncelog admin topics list`: the names in a namespace, or the topics in a state, the worst first.
`oncelog admin topics find`: what became of one message."""

from typing import Annotated, Any

import typer

from oncelog.cli.admin.commands import Report, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer, objects
from oncelog.cli.admin.rest_paths import ROOT, topic_path, topics_path
from oncelog.cli.admin.waiting import progress
from oncelog.core.names import check_producer_name, parse_namespace, parse_topic
from oncelog.core.topic.listing import ListedState

_DEFAULT_NAMESPACE = "public/default"
#: Topics of one request.
_PAGE = 1_000

NamespaceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAMESPACE",
        help=f"Namespace: tenant/namespace. Default: {_DEFAULT_NAMESPACE}; with --state or --top: all namespaces.",
        show_default=False,
    ),
]
StateOption = Annotated[
    ListedState | None,
    typer.Option(
        help="List topics in this state, the worst first. held: a backlog quota holds or refuses publishing. waiting: "
        "not served. blocked: a subscription gets no new messages because of its ack state. backlog: a subscription "
        "has unacknowledged messages. growing: the backlog of a subscription has grown for ten minutes. unconsumed: a "
        "subscription without a consumer has had messages for ten minutes. Shows each topic's state, also without this "
        "option if --top is given.",
        show_default=False,
    ),
]
TopOption = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum number of topics to list with their state. Default: 20.", show_default=False),
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
NameOption = Annotated[str, typer.Option("--producer-name", help="Name of the message's producer.")]
SequenceOption = Annotated[int, typer.Option("--sequence-id", min=0, help="Sequence id of the message.")]


def add_topic_list(app: typer.Typer) -> None:
    """Add both commands."""

    @admin_command(app, "list", line="List topics, or their state.")
    def list_topics(
        api: AdminApi,
        namespace: NamespaceArgument = None,
        state: StateOption = None,
        top: TopOption = None,
        partitioned: Annotated[
            bool, typer.Option("--partitioned", help="List only partitioned topics, without their partitions.")
        ] = False,
    ) -> Answer:
        """List the topics of a namespace by name. With --state or --top, list topics with their state.

        A topic whose record is damaged is also listed, and standard error names the record. With a state: a topic owner
        that does not answer is listed below silent_owners; its topics are missing.
        """
        if partitioned and (state is not None or top is not None):
            raise typer.BadParameter("--partitioned lists names: leave out --state and --top")
        if partitioned:
            return api.get(f"{topics_path(namespace or _DEFAULT_NAMESPACE)}/partitioned")
        if state is None and top is None:
            path = topics_path(namespace or _DEFAULT_NAMESPACE)
            names = api.get(path)
            _warn_of_damage(api.get(path, unreadable=True))
            return names
        inside = "" if namespace is None else f"/{parse_namespace(namespace)}"
        return _pages(api, f"{ROOT}/topics{inside}", state, top or 20)

    @admin_command(app, "find", line="Find a message.")
    def find_message(
        api: AdminApi, topic: TopicArgument, producer_name: NameOption, sequence_id: SequenceOption
    ) -> Report:
        """Find a message by the name of its producer and its sequence id: whether it is stored, and where.

        For a partitioned topic, each partition is asked. refusals: how often a batch with this id was not stored, by
        verdict, and when; the owner remembers it since it took the topic over. Nothing is delivered. With -o json: a
        list, with one element for each partition. Needs the right `admin` or `consume`.
        """
        check_producer_name(producer_name)
        path = f"{topic_path(topic)}/messages/find"
        answer = api.get(path, producer_name=producer_name, sequence_id=sequence_id)
        found = objects(answer)
        if len(found) == 1:
            return Report(_known(found[0]), answer)
        rows: list[object] = [
            {"partition": parse_topic(str(row["topic"])).partition, "explanation": row["explanation"]} for row in found
        ]
        return Report(rows or "no partition of the topic has been used", answer)


def _warn_of_damage(unreadable: Answer) -> None:
    """unreadable: paths of records; an older server ignores the question, and returns names."""
    for path in unreadable if isinstance(unreadable, list) else ():
        if str(path).startswith("/"):
            progress(f"the record {path} cannot be read: rebuild it with `oncelog admin backup rebuild {path}`")


def _known(found: dict[str, object]) -> dict[str, object]:
    """Without what is not known, or did not happen."""
    known = {name: value for name, value in found.items() if value is not None}
    refusals = known.pop("refusals", None)
    if isinstance(refusals, dict) and (refusals["counts"] or refusals["possible_counts"]):
        known["refusals"] = {name: value for name, value in refusals.items() if value not in (None, {})}
    return known


def _pages(api: AdminApi, path: str, state: ListedState | None, top: int) -> Answer:
    """One response with up to `top` topics. It takes more than one request only above _PAGE topics."""
    shown: dict[str, Any] = {}
    topics: list[object] = []
    after: str | None = None
    while len(topics) < top:
        page = api.get(path, state=state, limit=min(_PAGE, top - len(topics)), after=after)
        if not isinstance(page, dict) or not isinstance(page["topics"], list):
            break
        shown = page
        topics += page["topics"]
        if page["next_after"] is None:
            break
        after = str(page["next_after"])
    return shown | {"topics": topics}
