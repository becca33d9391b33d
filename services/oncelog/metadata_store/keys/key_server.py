"""The server of idempotency keys that the settings name."""

from typing import TYPE_CHECKING

from oncelog.runtime.settings import MetadataSettings

if TYPE_CHECKING:
    from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer


def key_server(settings: MetadataSettings, cluster_id: str) -> "RedisKeyServer | None":
    """None if no Redis is configured. Raises InvalidArgument for a malformed address or a missing file."""
    if not settings.redis_url and not settings.redis_url_file:
        return None
    # Imported here: with cryptography, it would nearly double the modules loaded at a start without Redis.
    from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer
    from oncelog.metadata_store.keys.redis_address import RedisAddress

    address = RedisAddress(
        settings.redis_url,
        url_file=settings.redis_url_file,
        password_file=settings.redis_password_file,
        ca_file=settings.redis_tls_ca_file,
        server_name=settings.redis_tls_server_name,
    )
    return RedisKeyServer(address, cluster_id, check_config=settings.redis_config_check)
