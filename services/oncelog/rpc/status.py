"""Errors on the wire: core errors <-> Error messages <-> gRPC status codes. Only this module uses the codes.

A failed call carries its Error in the trailing metadata `oncelog-error-bin`; the status code is for other programs. A
failure without an Error came from gRPC itself, and only its code is known.
"""

import grpc

from oncelog.core import errors
from oncelog.core.errors import BY_CODE, InvariantViolated, OncelogError
from oncelog.rpc.connecting import why_not_connected
from oncelog.rpc.frames import parse
from oncelog.wire import error_pb2 as pb

ERROR_KEY = "oncelog-error-bin"
_INT64_MAX = 2**63 - 1
#: gRPC limits the metadata of a call to 8 KiB.
_MESSAGE_CHARACTERS_MAX = 1_500

#: {class: code}; the nearest base class decides.
_CODES: dict[type[OncelogError], grpc.StatusCode] = {
    OncelogError: grpc.StatusCode.UNKNOWN,
    errors.Retriable: grpc.StatusCode.UNAVAILABLE,
    errors.NotOwner: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SessionEnded: grpc.StatusCode.ABORTED,
    errors.SequenceGap: grpc.StatusCode.ABORTED,
    errors.UnknownProducer: grpc.StatusCode.ABORTED,
    errors.ProducerBusy: grpc.StatusCode.ALREADY_EXISTS,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.TooManyRequests: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Fatal: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.Conflict: grpc.StatusCode.ABORTED,
    errors.PreconditionFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.CorruptEntry: grpc.StatusCode.DATA_LOSS,
    errors.UnreadableEntry: grpc.StatusCode.DATA_LOSS,
    errors.EntriesLost: grpc.StatusCode.DATA_LOSS,
    errors.LogHole: grpc.StatusCode.DATA_LOSS,
    InvariantViolated: grpc.StatusCode.INTERNAL,
}

#: {name of a code: class} for failures of gRPC itself; any other code is ServiceUnavailable.
_CLASSES: dict[str, type[OncelogError]] = {
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "INVALID_ARGUMENT": errors.InvalidArgument,
    "PERMISSION_DENIED": errors.PermissionDenied,
    "UNAUTHENTICATED": errors.Unauthenticated,
    "UNIMPLEMENTED": errors.Fatal,
    # gRPC uses it for a message that exceeds the limit of either side.
    "RESOURCE_EXHAUSTED": errors.MessageTooLarge,
}


def code_of(error: OncelogError) -> grpc.StatusCode:
    return next(_CODES[cls] for cls in type(error).__mro__ if cls in _CODES)


def error_to_wire(error: OncelogError) -> pb.Error:
    """Details that are None are omitted; numbers beyond 64 bits become text."""
    out = pb.Error(code=error.code, message=error.message[:_MESSAGE_CHARACTERS_MAX], retriable=error.retriable)
    for name, value in error.details.items():
        if value is None:
            continue
        if isinstance(value, int) and -_INT64_MAX <= value <= _INT64_MAX:
            out.details[name].number = value
        else:
            out.details[name].text = str(value)[:_MESSAGE_CHARACTERS_MAX]
    return out


def error_from_wire(error: pb.Error) -> OncelogError:
    """An unknown code becomes Retriable or Fatal. A peer's InvariantViolated becomes ServiceUnavailable."""
    cls = BY_CODE.get(error.code, errors.Retriable if error.retriable else errors.Fatal)
    if issubclass(cls, InvariantViolated):
        cls = errors.ServiceUnavailable
    out = cls(error.message)
    out.details = {n: d.number if d.HasField("number") else d.text for n, d in error.details.items()}
    return out


def trailing_of(error: OncelogError) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata that carries an error."""
    return ((ERROR_KEY, error_to_wire(error).SerializeToString()),)


def error_from_call(failure: grpc.aio.AioRpcError, address: str, *, origin: str = "") -> OncelogError:
    """The core error of a failed call to `address`. origin: where the address comes from."""
    for key, value in failure.trailing_metadata() or ():
        if key == ERROR_KEY and isinstance(value, bytes):
            return error_from_wire(parse(pb.Error.FromString, value))
    cls = _CLASSES.get(failure.code().name, errors.ServiceUnavailable)
    details = failure.details() or failure.code().name
    if cls is errors.ServiceUnavailable and (reason := why_not_connected(details)) is not None:
        return not_reached(address, reason, origin=origin, details=details)
    if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
        details = f"{details}: this process is of another version; upgrade all processes to the same one"
    return cls(f"{address}: {details}", address=address)


def not_reached(address: str, reason: str, *, origin: str = "", details: str = "") -> errors.ServiceUnavailable:
    """The error for an address that cannot be connected to. details: gRPC's own text."""
    place = f"{address} ({origin})" if origin else address
    # OpenSSL's text about a handshake is more precise than a summary.
    message = f"cannot reach {place}: {reason}" + (f" [{details}]" if details and "TLS" in reason else "")
    return errors.ServiceUnavailable(message, address=address, reason=reason, origin=origin or None)


def may_have_been_done(error: OncelogError) -> bool:
    """Whether a call that failed with this error may have been carried out: it may have been sent, and no answer came.

    ServiceUnavailable has an address when no answer came, and also a reason when nothing could be sent.
    """
    if isinstance(error, errors.ServiceUnavailable):
        return "address" in error.details and "reason" not in error.details
    return isinstance(error, errors.DeadlineExceeded)
