"""`oncelog admin producers list`, `show` and `delete`: the producers of a topic, and how to end one."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import Report, admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import producer_path, topic_path
from oncelog.cli.admin.units import seconds_of
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import is_reserved, parse_topic

#: Producers of one request.
_PAGE = 1_000

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
ProducerArgument = Annotated[
    str, typer.Argument(metavar="PRODUCER", help="Name of the producer, or its id if no producer has this name.")
]
PrefixOption = Annotated[str, typer.Option("--prefix", help="List names that begin with this.", show_default=False)]
RoleOption = Annotated[str | None, typer.Option("--role", help="List names that belong to this role.")]
ConnectedOption = Annotated[
    bool | None,
    typer.Option("--connected/--not-connected", help="List producers with a session, or without.", show_default=False),
]
IdleOption = Annotated[
    str | None,
    typer.Option(
        "--idle-longer-than", help="List producers without a message, opening or renewal for this time: 30m, 12h, 7d."
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires-within", help="List producers that may expire within this time, if they do nothing."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of producers.")]
AfterOption = Annotated[str | None, typer.Option("--after", help="Continue here: next_after of an earlier list.")]

ForceOption = Annotated[bool, typer.Option("--force", help="Delete it even if it is connected: its program is fenced.")]


def add_producer_list(app: typer.Typer) -> None:
    """Add both commands."""

    @admin_command(app, "list", line="List the producers of a topic.")
    def list_producers(
        api: AdminApi,
        topic: TopicArgument,
        prefix: PrefixOption = "",
        role: RoleOption = None,
        connected: ConnectedOption = None,
        idle_longer_than: IdleOption = None,
        expires_within: ExpiresOption = None,
        limit: LimitOption = 100,
        after: AfterOption = None,
    ) -> Report:
        """List the producers of a topic, or of all its partitions, that match all given filters.

        idle: since the last message, opening or renewal. expires: the shortest time until the producer may expire, if
        it does nothing; - if it never expires. from: the client that has the session. -o wide has all columns. If there
        are more, pass next_after to --after. Needs the right `admin`.
        """
        found: list[Answer] = []
        while True:
            page = api.get(
                f"{topic_path(topic)}/producers",
                name_prefix=prefix or None,
                role=role,
                connected=connected,
                idle_ms=_ms(idle_longer_than, "idle-longer-than"),
                expires_within_ms=_ms(expires_within, "expires-within"),
                limit=min(_PAGE, limit - len(found)),
                after=after,
            )
            rows = objects(page.get("producers")) if isinstance(page, dict) else []
            found += [dict(row) for row in rows]
            following = page.get("next_after") if isinstance(page, dict) else None
            after = str(following) if following is not None else None
            if after is None or len(found) >= limit:
                break
        shown: list[object] = [_row(row) for row in found if isinstance(row, dict)]
        answer: Answer = {"producers": list(found), "next_after": after}
        if after is None:
            return Report(shown or "no producers", answer)
        return Report({"producers": shown, "next_after": after}, answer)

    @admin_command(app, "show", line="Show one producer.")
    def show_producer(api: AdminApi, topic: TopicArgument, producer: ProducerArgument) -> Report:
        """Show a producer of a topic; of a partitioned topic, in each partition that has it.

        accepted and persisted: the highest sequence id that was handed to the log, and that is durable. duplicates,
        stale and unverified count messages since the owner took the topic over. generations: which client fenced which,
        when, and from where. With -o json: a list, with one element for each partition. Needs the right `admin`.
        """
        answer = api.get(producer_path(topic, producer))
        only = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
        return Report(only if isinstance(only, dict) else answer, answer)


def _ms(typed: str | None, field: str) -> int | None:
    """Raises InvalidArgument."""
    if typed is None:
        return None
    seconds = seconds_of(typed, field)
    if seconds < 0:
        raise InvalidArgument(f"{field}: {typed} is no duration: give 30m, 12h or 7d", field=field)
    return seconds * 1000


def _row(row: dict[str, object]) -> dict[str, object]:
    """A row of the table: with the number of its partition, if it has one."""
    own = {name: value for name, value in row.items() if name != "topic"}
    partition = parse_topic(str(row.get("topic"))).partition
    return own if partition is None else {"partition": partition, **own}


def add_producer_removal(app: typer.Typer) -> None:
    """Add the command."""

    @admin_command(app, "delete", line="Delete or expire a producer.")
    def delete_producer(
        api: AdminApi,
        topic: TopicArgument,
        producer: ProducerArgument,
        expire: Annotated[
            bool,
            typer.Option(
                "--expire",
                help="Expire it before its time: its program gets ProducerExpired. Not for one that has no lifetime.",
            ),
        ] = False,
        force: ForceOption = False,
        yes: YesOption = False,
    ) -> Answer:
        """Delete a producer, also one that has no lifetime. Says what is lost, and asks first.

        The log forgets the producer and its sequence ids. If its program repeats a message, the message is stored
        again: delete a producer only if it will never send again. Its name is free then; its id is never given to
        another producer. For a partitioned topic, name one partition: TOPIC-partition-N. Needs the right `admin`.
        """
        found = _found(api, topic, producer)
        verb = "expire" if expire else "delete"
        confirm(yes, lambda: f"{verb} {_loss(topic, found, force=force)}", typed=str(found["name"]))
        if expire:
            api.post(f"{_path(found)}/expire{_forced(force)}")
        else:
            api.delete(f"{_path(found)}{_forced(force)}")
        return f"{verb}d producer {found['name']} of {topic}"


def _found(api: AdminApi, topic: str, producer: str) -> dict[str, object]:
    """The one producer. Raises NotFound, and InvalidArgument if several partitions have it."""
    found = objects(api.get(producer_path(topic, producer)))
    if len(found) != 1:
        message = f"{len(found)} partitions of {topic} have producer {producer}: name one, as {topic}-partition-N"
        raise InvalidArgument(message, field="topic")
    return found[0]


def _path(found: dict[str, object]) -> str:
    """By the id: a name may have another producer when the command is repeated."""
    return producer_path(str(found["topic"]), number(found["producer_id"]))


def _forced(force: bool) -> str:
    return "?force=true" if force else ""


def _loss(topic: str, found: dict[str, object], *, force: bool) -> str:
    name, persisted = str(found["name"]), number(found["persisted"])
    stored = f"its sequence ids up to {persisted:,}" if persisted >= 0 else "its generation (it has stored nothing)"
    who = f"producer {name} (id {found['producer_id']}) of {topic}"
    texts = [f"{who}: the log forgets {stored}. What its program sends again is stored again"]
    if found.get("connected"):
        place = f" from {found['connected_from']}" if found.get("connected_from") else ""
        texts.append(f"It is connected{place}{', and is fenced' if force else ': without --force this is refused'}")
    if is_reserved(name):
        texts.append("The name is of a service or program of Oncelog, which uses it to do its work once")
    return ". ".join(texts)
