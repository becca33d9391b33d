"""The server of idempotency keys that the settings name, and the store of keys on it."""

import time
from typing import TYPE_CHECKING

from oncelog.metadata_store.keys.idempotency_keys import DatasetStore, KeyStore
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.settings import MetadataSettings

if TYPE_CHECKING:
    from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer
    from oncelog.metadata_store.keys.redis_address import RedisAddress


def key_store(settings: MetadataSettings, session: StoreSession, cluster_id: str) -> KeyStore | None:
    """As `key_server`."""
    server = key_server(settings, cluster_id)
    if server is None:
        return None
    window_ms = settings.idempotency_window_s * 1000
    return KeyStore(server, DatasetStore(session), window_ms=window_ms, now_ms=lambda: time.time_ns() // 1_000_000)


def key_server(settings: MetadataSettings, cluster_id: str) -> "RedisKeyServer | None":
    """None if no Redis is configured. Raises InvalidArgument for a malformed address or a missing file."""
    address = redis_address(settings)
    if address is None:
        return None
    from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer

    return RedisKeyServer(address, cluster_id, check_config=settings.redis_config_check)


def redis_address(settings: MetadataSettings) -> "RedisAddress | None":
    """As `key_server`."""
    if not settings.redis_url and not settings.redis_url_file:
        return None
    # Imported here: with cryptography, it would nearly double the modules loaded at a start without Redis.
    from oncelog.metadata_store.keys.redis_address import RedisAddress

    return RedisAddress(
        settings.redis_url,
        url_file=settings.redis_url_file,
        password_file=settings.redis_password_file,
        ca_file=settings.redis_tls_ca_file,
        server_name=settings.redis_tls_server_name,
    )
