"""A REST interface that records requests and answers what a test has set, for tests of `oncelog admin`."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from typer.testing import CliRunner

from oncelog.cli.app import app

Asked = tuple[str, str, object]


class RecordingServer(ThreadingHTTPServer):
    """Answers each path from `answers`: (status, body); 204 where nothing is set. `later`: its next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.asked: list[Asked] = []
        self.headers: list[Message] = []
        self.answers: dict[str, tuple[int, object]] = {}
        self.later: dict[str, list[tuple[int, object]]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Recorder(BaseHTTPRequestHandler):
    """One request, recorded and answered."""

    server: RecordingServer
    protocol_version: ClassVar[str] = "HTTP/1.1"  # type: ignore[misc]

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.headers.append(self.headers)
        sent: object = json.loads(body) if body and "json" in self.headers.get("Content-Type", "") else body or None
        self.server.asked.append((self.command, self.path, sent))
        status, answer = self.server.answers.get(self.path, (204, None))
        if self.server.later.get(self.path):
            self.server.answers[self.path] = self.server.later[self.path].pop(0)
        data = b"" if status == 204 else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def log_message(self, *_arguments: object) -> None:
        """Nothing on standard error."""


@contextmanager
def served() -> Iterator[RecordingServer]:
    server = RecordingServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def admin(rest: RecordingServer, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `oncelog admin …`, without a terminal."""
    result = CliRunner().invoke(app, ["admin", *words, "--admin-url", rest.url])
    return result.exit_code, result.stdout, result.stderr
