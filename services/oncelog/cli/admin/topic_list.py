"""`oncelog admin topics list`: the names in a namespace, or the topics in a state, the worst first."""

from typing import Annotated, Any

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import ROOT, topics_path
from oncelog.core.names import parse_namespace
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
        "has unacknowledged messages. Shows each topic's state, also without this option if --top is given.",
        show_default=False,
    ),
]
TopOption = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum number of topics to list with their state. Default: 20.", show_default=False),
]


def add_topic_list(app: typer.Typer) -> None:
    """Add the command."""

    @admin_command(app, "list", line="List topics, or their state.")
    def list_topics(
        api: AdminApi, namespace: NamespaceArgument = None, state: StateOption = None, top: TopOption = None
    ) -> Answer:
        """List the topics of a namespace by name. With --state or --top, list topics with their state.

        A topic owner that does not answer is listed below silent_owners; its topics are missing.
        """
        if state is None and top is None:
            return api.get(topics_path(namespace or _DEFAULT_NAMESPACE))
        inside = "" if namespace is None else f"/{parse_namespace(namespace)}"
        return _pages(api, f"{ROOT}/topics{inside}", state, top or 20)


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
