"""The address and credentials of Redis, from settings and from files that may change at run time."""

from pathlib import Path

import pytest

from oncelog.core.errors import IdempotencyUnavailable, InvalidArgument
from oncelog.core.http_publish.key_dataset import FoundDataset
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.keys.idempotency_backend import Guard, KeyReply, KeyServer
from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer
from oncelog.metadata_store.keys.redis_address import RedisAddress
from tests.contract.stores.redis_process import RedisProcess

ANYTHING = Guard(marker="", run="", writes=0, replicated=False)


async def write(server: KeyServer) -> KeyReply:
    return await server.write(ANYTHING, "key", b"value", replaces=None, window_ms=1_000, lease=None)


async def looks(server: KeyServer) -> bool:
    return isinstance(await server.look(), FoundDataset)


@pytest.mark.asyncio
async def test_password_comes_from_its_file(tmp_path: Path) -> None:
    """Without it, and with a wrong one, Redis refuses. A password in the address works, too."""
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "wrong").write_text("wrong\n")
    with RedisProcess.running(tmp_path / "redis", "--requirepass", "secret") as own:
        told = own.url.replace("//", "//:secret@") + "?max_connections=2"
        for address, works in (
            (RedisAddress(own.url, password_file=str(tmp_path / "password")), True),
            (RedisAddress(told.replace("secret", "wrong"), password_file=str(tmp_path / "password")), True),
            (RedisAddress(told), True),
            (RedisAddress(own.url, password_file=str(tmp_path / "wrong")), False),
            (RedisAddress(own.url), False),
        ):
            server = RedisKeyServer(address, "cluster")
            if works:
                await server.check_settings()
            else:
                with pytest.raises(IdempotencyUnavailable):
                    await server.look()
            await server.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("of", ["password", "url"])
async def test_changed_password_is_used_without_a_restart(tmp_path: Path, of: str) -> None:
    """Redis and the file change at different times. Present connections stay; a write that is refused meanwhile is
    reported as not written; the next connection uses the new password."""
    file = tmp_path / "file"
    with RedisProcess.running(tmp_path / "redis", "--requirepass", "first") as own:
        line = "{}" if of == "password" else own.url.replace("//", "//:{}@")
        file.write_text(line.format("first"))
        address = (
            RedisAddress(own.url, password_file=str(file)) if of == "password" else RedisAddress(url_file=str(file))
        )
        server = RedisKeyServer(address, "cluster")
        assert await looks(server)
        own.set_password("first", "second")
        assert await looks(server), "the connection that is there stays good"

        own.cut_clients("second")
        with pytest.raises(IdempotencyUnavailable, match="password"):
            await server.look()
        with pytest.raises(IdempotencyUnavailable):
            await write(server)
        file.write_text(line.format("second") + "\n")
        assert await looks(server)
        assert (await write(server)).status is WriteStatus.OK
        await server.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host:1/0", ()),
        ("redis://:p%40ss@host:1/0", ("p@ss",)),
        ("redis://user:secret@host:1/0", ("user", "secret")),
        ("rediss://user@host:1/0", ("user", "")),
    ],
)
def test_user_and_password_of_an_address(url: str, expected: tuple[str, ...]) -> None:
    """As Redis expects them. No option of the connections contains them: options would override a changed file."""
    address = RedisAddress(url)
    assert address.get_credentials() == expected
    assert not {"username", "password"} & set(address.options)


def test_empty_or_damaged_file_changes_nothing(tmp_path: Path) -> None:
    """A file that is emptied or damaged by mistake leaves the previous content in force."""
    file = tmp_path / "url"
    file.write_text("redis://:secret@host:1/0")
    address = RedisAddress(url_file=str(file))
    for mistake in ("", "http://host", "redis://host:port/0"):
        file.write_text(mistake)
        assert address.get_credentials() == ("secret",)


@pytest.mark.parametrize("address", ["http://127.0.0.1", "redis://host:port/0"])
def test_malformed_address_is_refused(address: str, tmp_path: Path) -> None:
    """At the start, with the name of its setting."""
    (tmp_path / "url").write_text(address)
    with pytest.raises(InvalidArgument, match="ONCELOG_REDIS_URL must be redis://host:port/number"):
        RedisAddress(address)
    with pytest.raises(InvalidArgument, match="ONCELOG_REDIS_URL_FILE"):
        RedisAddress(url_file=str(tmp_path / "url"))


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_file_that_cannot_be_used_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """Missing, empty or not text: a start must not continue without the configured password."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument, match="ONCELOG_REDIS_PASSWORD_FILE"):
        RedisAddress("redis://host:1/0", password_file=str(path))
    with pytest.raises(InvalidArgument, match="ONCELOG_REDIS_URL_FILE"):
        RedisAddress(url_file=str(path))
