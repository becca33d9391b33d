"""How kazoo's thread waits: for a socket that receives ahead, and for requests. On pairs of real sockets."""

import socket
from collections.abc import Iterator

import pytest

from oncelog.metadata_store.session.kazoo_handler import BufferedSocket, ImpatientHandler


@pytest.fixture
def pair() -> Iterator[tuple[BufferedSocket, socket.socket]]:
    """The client's end, and the server's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield BufferedSocket(ours, timeout_s=0.05), theirs


def test_bytes_that_were_received_ahead_need_no_wait(pair: tuple[BufferedSocket, socket.socket]) -> None:
    """Ten answers arrive together: the operating system is asked once, and the wait for more ends at once."""
    connection, server = pair
    requests, _wake = socket.socketpair()
    handler = ImpatientHandler(session_timeout_s=60.0, hosts_count=1)
    with requests, _wake:
        server.sendall(b"answer")
        assert handler.select([connection, requests], [], [], 60.0) == ([connection], [], [])
        assert (connection.recv(2), connection.pending()) == (b"an", 4)
        # The operating system holds nothing more; a wait here would last for the whole minute.
        assert handler.select([connection, requests], [], [], 60.0) == ([connection], [], [])
        _wake.send(b"x")
        ready, _, _ = handler.select([connection, requests], [], [], 60.0)
        assert set(map(id, ready)) == {id(connection), id(requests)}
        assert (connection.recv(100), connection.pending()) == (b"swer", 0)
        server.close()
        assert handler.select([connection, requests], [], [], 60.0)[0]
        assert connection.recv(100) == b""


def test_a_server_that_takes_no_data_is_given_up(pair: tuple[BufferedSocket, socket.socket]) -> None:
    """kazoo would otherwise repeat the send for ever, and use a core for it."""
    connection, _server = pair

    def fill() -> None:
        while True:
            connection.send(bytes(65536))

    with pytest.raises(OSError, match="takes no data"):
        fill()


def test_an_answer_is_delivered_without_another_thread() -> None:
    """The callback runs where the answer is set, and one that fails harms nothing."""
    handler = ImpatientHandler(session_timeout_s=6.0, hosts_count=1)
    result, heard = handler.async_result(), []
    result.rawlink(lambda _result: 1 / 0)
    result.rawlink(lambda answer: heard.append(answer.value))
    result.set("found")
    assert heard == ["found"]
