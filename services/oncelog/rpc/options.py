"""gRPC's options, shared by all channels and servers.

HTTP/2 frame sizes and read chunks have gRPC's defaults: other values made no measurable difference. So has flow
control, except where a service receives what others choose to send.
"""

#: Largest message on the wire: a batch of 5 MiB, or a frame of many small ones, and their headers.
FRAME_BYTES_MAX = 16 * 1024 * 1024
#: Size up to which senders fill a frame. With freed memory kept (`runtime.memory`), frames of 1 MiB need two thirds of
#: the CPU time of frames of 256 KiB; larger ones gain nothing more.
FRAME_BYTES_TARGET = 1024 * 1024

#: What one stream may have received and not read, where a service receives for others. By default gRPC estimates it
#: from the bytes that arrive during a ping. A busy process answers pings late, so the estimate grew to 270 MB for a
#: stream that was not read.
UNREAD_BYTES_MAX = 4 * 1024 * 1024

#: Connections at one server, unless its settings say otherwise.
CONNECTIONS_MAX = 10_000
#: Limit of the TLS and HTTP/2 handshake, before which a peer is not authenticated.
HANDSHAKE_TIMEOUT_MS = 5_000

#: Keys of the metadata that carry the token, and the era of a service that calls another one (`core.era`).
AUTHORIZATION = "authorization"
ERA = "oncelog-era"

Options = list[tuple[str, int]]

#: A vanished host is noticed within the sum of both, which is below the session timeout of 6 s.
_KEEPALIVE_TIME_MS = 2_000
_KEEPALIVE_TIMEOUT_MS = 3_000
#: gRPC's default pause between attempts starts at 1 s, which would delay a client that fails over.
_RECONNECT_MS_MIN = 20
_RECONNECT_MS_MAX = 1_000
#: A restarted pod has the same name and another address. By default gRPC resolves a name again after 30 s at the
#: earliest.
_RESOLVE_AGAIN_MS = 500


def _shared(frame_bytes_max: int) -> Options:
    return [
        ("grpc.max_receive_message_length", frame_bytes_max),
        ("grpc.max_send_message_length", frame_bytes_max),
        ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # Without it, a stream to a stopped process whose kernel still answers stays open for a minute.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def bounded_unread() -> Options:
    return [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", UNREAD_BYTES_MAX)]


def server_options(frame_bytes_max: int, connections_max: int) -> Options:
    return [
        *_shared(frame_bytes_max),
        *bounded_unread(),
        # A connection counts from its acceptance, and must finish its handshake within this time.
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
        # Otherwise two servers on one port would each get half of the calls.
        ("grpc.so_reuseport", 0),
        # By default a server disconnects clients that ping as often as ours.
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_TIME_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def channel_options(frame_bytes_max: int, *, attempt_ms: int = 1_000, forwards: bool = False) -> Options:
    """attempt_ms: how long one attempt to connect may take (`rpc.connecting`). forwards: `Channel`."""
    return [
        *_shared(frame_bytes_max),
        *(bounded_unread() if forwards else ()),
        ("grpc.min_reconnect_backoff_ms", attempt_ms),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        ("grpc.dns_min_time_between_resolutions_ms", _RESOLVE_AGAIN_MS),
        # A new channel makes a new connection, without the pause of one that failed before.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    ]
