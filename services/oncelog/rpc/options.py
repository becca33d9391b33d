"""gRPC's options, the same for every channel and server. Figures were measured; others made no difference.

Flow control, frame sizes of HTTP/2 and read chunks stay gRPC's: changing them moved nothing beyond the noise.
"""

#: Largest message on the wire: a batch of 5 MiB, or a frame of many small ones, and their headers.
FRAME_BYTES_MAX = 16 * 1024 * 1024
#: What senders should fill a frame up to. With freed memory kept (`runtime.memory`) a path of frames of 1 MiB needs
#: two thirds of the processor that frames of 256 KiB need, and twice that size gains nothing more.
FRAME_BYTES_TARGET = 1024 * 1024

#: Connections at one server, unless its settings say otherwise.
CONNECTIONS_MAX = 10_000
#: How long TLS and the beginning of HTTP/2 may take. Nobody has proved anything by then.
HANDSHAKE_TIMEOUT_MS = 5_000

#: Key of the metadata that carries the token.
AUTHORIZATION = "authorization"

Options = list[tuple[str, int]]

#: A host that vanishes is noticed within the time of both together, below the session timeout of 6 s.
_KEEPALIVE_TIME_MS = 2_000
_KEEPALIVE_TIMEOUT_MS = 3_000
#: gRPC's own pause between attempts begins at 1 s, which a client that fails over would feel.
_RECONNECT_MS_MIN = 20
_RECONNECT_MS_MAX = 1_000
#: A pod that comes back has its name and another address. gRPC asks for a name again after 30 s at the soonest.
_RESOLVE_AGAIN_MS = 500


def _shared(frame_bytes_max: int) -> Options:
    return [
        ("grpc.max_receive_message_length", frame_bytes_max),
        ("grpc.max_send_message_length", frame_bytes_max),
        ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # Without it a stream to a process that is stopped, whose kernel still answers, stays open for a minute.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def server_options(frame_bytes_max: int, connections_max: int) -> Options:
    return [
        *_shared(frame_bytes_max),
        # A connection counts from the moment it is taken, and has so long to become one that speaks gRPC.
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
        # Two servers on one port would each get half of the calls.
        ("grpc.so_reuseport", 0),
        # By default a server hangs up on clients that ping as often as ours.
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_TIME_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def channel_options(frame_bytes_max: int, *, attempt_ms: int = 1_000) -> Options:
    """attempt_ms: how long one attempt to connect may take (`rpc.connecting`)."""
    return [
        *_shared(frame_bytes_max),
        ("grpc.min_reconnect_backoff_ms", attempt_ms),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        ("grpc.dns_min_time_between_resolutions_ms", _RESOLVE_AGAIN_MS),
        # A new channel begins with a new connection, not with the pause of one that failed before.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    ]
