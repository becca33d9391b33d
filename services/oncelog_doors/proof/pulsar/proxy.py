"""Frames of Pulsar's protocol, by their command."""

from struct import Struct

from oncelog_doors.core.pulsar.server_errors import ServerError
from oncelog_doors.proof.proxy import FaultProxy, Link
from oncelog_doors.pulsar.commands import parse_command

_SIZE = Struct(">I")


class PulsarProxy(FaultProxy):
    """Errors are also seen by their name in Pulsar's protocol."""

    def named(self, link: Link, body: bytes, *, of_client: bool) -> tuple[str, bytes]:
        (size,) = _SIZE.unpack_from(body)
        name, command = parse_command(body[_SIZE.size : _SIZE.size + size])
        if name in ("error", "send_error"):
            self.seen[ServerError(getattr(command, name).error).wire_name] += 1
        return name, body
