"""`oncelog admin producers expire` and `delete`."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.producer_list import ProducerArgument, TopicArgument
from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import producer_path
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import is_reserved

ForceOption = Annotated[bool, typer.Option("--force", help="Also if it is connected: its program is fenced.")]


def add_producer_removal(app: typer.Typer) -> None:
    """Add both commands."""

    @admin_command(app, "expire", line="Expire a producer now.")
    def expire_producer(
        api: AdminApi,
        topic: TopicArgument,
        producer: ProducerArgument,
        force: ForceOption = False,
        yes: YesOption = False,
    ) -> Answer:
        """Expire a producer before its time. Says what is lost, and asks first.

        The log forgets the producer with its sequence ids, as it does when its time is over. Its program gets
        ProducerExpired. A message that it has sent, and sends again by a new producer, is stored again. Its id is never
        given to another producer, and its name is free. A producer that lives for ever does not expire: delete it. Of a
        partitioned topic, name one partition: TOPIC-partition-N. Needs the right `admin`.
        """
        found = _found(api, topic, producer)
        confirm(yes, lambda: f"expire {_loss(topic, found, force=force)}", typed=str(found["name"]))
        api.post(f"{_path(found)}/expire{_forced(force)}")
        return f"expired producer {found['name']} of {topic}"

    @admin_command(app, "delete", line="Delete a producer.")
    def delete_producer(
        api: AdminApi,
        topic: TopicArgument,
        producer: ProducerArgument,
        force: ForceOption = False,
        yes: YesOption = False,
    ) -> Answer:
        """Delete a producer, also one that lives for ever. Says what is lost, and asks first.

        The log forgets the producer with its sequence ids. A message that its program has sent, and sends again, is
        stored again: delete only what will never send again. A name is free then, and an id is never given to another
        producer. Of a partitioned topic, name one partition: TOPIC-partition-N. Needs the right `admin`.
        """
        found = _found(api, topic, producer)
        confirm(yes, lambda: f"delete {_loss(topic, found, force=force)}", typed=str(found["name"]))
        api.delete(f"{_path(found)}{_forced(force)}")
        return f"deleted producer {found['name']} of {topic}"


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
