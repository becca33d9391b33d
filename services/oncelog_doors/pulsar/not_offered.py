"""Requests for what is not offered here: transactions, watchers of topics, scalable topics. Each has its own answer.

All say 22. Any other code makes a client of transactions ask again for ever (hazard transactions-retried-for-ever).
"""

from oncelog_doors.core.pulsar.server_errors import ServerError
from oncelog_doors.pulsar.commands import TYPES, command
from oncelog_doors.wire.pulsar_commands_pb2 import Command, Error, NotOffered

#: {part of a name: what is asked for}, the first one that fits
_SUBJECTS = {"scalable": "scalable topics", "watch_topics": "watchers of topics", "topic_watcher": "watchers of topics"}
_CODE = int(ServerError.NOT_ALLOWED_ERROR)
#: They end something that was never begun, and have no answer in Pulsar.
_UNANSWERED = {"close_scalable_lookup", "close_scalable_watcher", "close_coordinator_watcher"}
#: Pulsar answers them with an ordinary error.
_ANSWERED_BY_ERROR = {"watch_topics", "close_topic_watcher"}


def is_not_offered(name: str) -> bool:
    """Whether the command of this name is such a request."""
    return name in TYPES and Command.DESCRIPTOR.fields_by_name[name].message_type is NotOffered.DESCRIPTOR


def declined(name: str, request: NotOffered) -> Command | None:
    """The answer; None if there is none."""
    if name in _UNANSWERED:
        return None
    what = next((subject for part, subject in _SUBJECTS.items() if part in name), "transactions")
    sentence = f"{what} are not offered here: use topics and subscriptions without them"
    if name in _ANSWERED_BY_ERROR:
        return command(error=Error(request_id=request.id, error=_CODE, message=sentence))
    answer = f"{name}_declined"
    kind = getattr(Command(), answer).__class__
    return command(**{answer: kind(id=request.id, error=_CODE, message=sentence)})
