"""`oncelog context`: clusters by name. What a command takes from the current one, and what a broken file says."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from oncelog.cli.app import app
from oncelog.cli.connection import Connection
from tests.cluster.cli.recorded_rest import RecordingServer, served


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        server.answers["/admin/v2/tenants"] = (200, [])
        yield server


class User:
    """Commands of one user, whose configuration is in `home`."""

    def __init__(self, home: Path) -> None:
        self.path = home / "oncelog" / "contexts.json"
        self._environment: dict[str, str | None] = dict.fromkeys(
            ("ONCELOG_URL", "ONCELOG_ADMIN_URL", "ONCELOG_TOKEN_FILE", "ONCELOG_TLS_CA_FILE")
        ) | {"XDG_CONFIG_HOME": str(home)}

    def run(self, *words: str, **variables: str) -> Result:
        return CliRunner().invoke(app, list(words), env=self._environment | variables)

    def ok(self, *words: str) -> str:
        result = self.run(*words)
        assert result.exit_code == 0, result.stderr
        return result.stdout


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "config")


def test_contexts_are_added_used_shown_and_deleted(user: User, tmp_path: Path) -> None:
    """The file is its owner's alone, and holds no token."""
    token = tmp_path / "prod.token"
    token.write_text("secret")
    user.ok("context", "add", "prod", "--url", "oncelog://a:1", "--admin-url", "http://a:2", "--token-file", str(token))
    user.ok("context", "add", "dev", "--url", "oncelog://b:1")
    assert user.ok("context", "list") == "  dev  oncelog://b:1\n  prod  oncelog://a:1\n"
    user.ok("context", "use", "prod")
    prod = {"url": "oncelog://a:1", "admin_url": "http://a:2", "token_file": str(token)}
    dev = {"url": "oncelog://b:1"}
    listed = {"current": "prod", "contexts": {"dev": dev, "prod": prod}}
    assert json.loads(user.ok("context", "list", "-o", "json")) == listed
    assert json.loads(user.ok("context", "list", "prod", "-o", "json")) == {"context": "prod", **prod}
    assert user.ok("context", "list", "dev") == "context      dev\nurl          oncelog://b:1\n"
    assert stat.S_IMODE(user.path.stat().st_mode) == 0o600
    assert "secret" not in user.path.read_text()
    user.ok("context", "delete", "prod")
    assert json.loads(user.ok("context", "list", "-o", "json")) == {"current": None, "contexts": {"dev": dev}}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("add dev --url oncelog://a:1", "context dev exists: delete it first"),
        ("add new", "a context needs --url, --admin-url or both"),
        ("add new --url oncelog://a:b:c", "is not host:port"),
        ("add new --admin-url a:8080", "--admin-url must be http[s]://HOST:PORT"),
        ("add a/b --url oncelog://a:1", "context"),
        ("use prod", "there is no context prod; known are: dev"),
        ("use", "give either NAME or --none"),
        ("list prod", "there is no context prod"),
        ("delete prod", "there is no context prod"),
    ],
)
def test_wrong_context_is_refused(user: User, words: str, why: str) -> None:
    """Nothing is changed."""
    user.ok("context", "add", "dev", "--url", "oncelog://b:1")
    before = user.path.read_text()
    result = user.run("context", *words.split())
    assert (result.exit_code, result.stdout, user.path.read_text()) == (1, "", before)
    assert why in result.stderr


def test_command_uses_the_current_context(user: User, rest: RecordingServer, tmp_path: Path) -> None:
    """Address and token. An address of an option or a variable excludes the context, so its token goes nowhere else."""
    token = tmp_path / "prod.token"
    token.write_text("t1")
    user.ok("context", "add", "prod", "--admin-url", rest.url, "--token-file", str(token))
    user.ok("context", "use", "prod")
    user.ok("admin", "tenants", "list")
    assert rest.headers[-1]["Authorization"] == "Bearer t1"
    user.ok("admin", "tenants", "list", "--admin-url", rest.url)
    assert "Authorization" not in rest.headers[-1]
    assert user.run("admin", "tenants", "list", ONCELOG_ADMIN_URL=rest.url).exit_code == 0
    assert "Authorization" not in rest.headers[-1]
    other = tmp_path / "other.token"
    other.write_text("t2")
    user.ok("admin", "tenants", "list", "--token-file", str(other))
    assert rest.headers[-1]["Authorization"] == "Bearer t2"
    token.unlink()
    gone = user.run("admin", "tenants", "list")
    assert (gone.exit_code, f"token_file of context prod is no file: {token}" in gone.stderr) == (1, True)


def test_token_of_a_variable_for_another_address_is_told(user: User, rest: RecordingServer, tmp_path: Path) -> None:
    """It is sent, as the user has asked for; without a variable for the address, and with the same, in silence."""
    (token := tmp_path / "prod.token").write_text("t1")
    for known, warned in (
        ({}, False),
        ({"ONCELOG_ADMIN_URL": rest.url}, False),
        ({"ONCELOG_ADMIN_URL": "http://a:1"}, True),
    ):
        shown = user.run(
            "admin", "tenants", "list", "--admin-url", rest.url, ONCELOG_TOKEN_FILE=str(token), **known
        )  # fmt: skip
        assert (shown.exit_code, rest.headers[-1]["Authorization"]) == (0, "Bearer t1")
        told = f"the token of ONCELOG_TOKEN_FILE is sent to --admin-url {rest.url}, and ONCELOG_ADMIN_URL names another"
        assert (told in shown.stderr) is warned
    own = ("--token-file", str(token))
    shown = user.run("admin", "tenants", "list", "--admin-url", rest.url, *own, ONCELOG_ADMIN_URL="http://a:1")
    assert "warning" not in shown.stderr


@pytest.mark.parametrize(
    "words", [("admin", "tenants", "list"), ("effects", "redo", "t", "s", "--from", "earliest", "--yes")]
)
def test_address_of_an_option_excludes_all_others(user: User, rest: RecordingServer, words: tuple[str, ...]) -> None:
    """Nothing is asked of another cluster, which a variable or the context names: a change would be made there."""
    user.ok("context", "add", "prod", "--admin-url", rest.url)
    user.ok("context", "use", "prod")
    for variables in ({}, {"ONCELOG_ADMIN_URL": rest.url}):
        for scheme in ("oncelog", "oncelog+proxy"):
            shown = user.run(*words, "--url", f"{scheme}://127.0.0.1:1", "--timeout", "1", **variables)
            assert (shown.exit_code, "127.0.0.1:1" in shown.stderr) == (4, True), shown.stderr
    shown = user.run(*words, ONCELOG_URL="oncelog://127.0.0.1:1")
    assert (shown.exit_code, "127.0.0.1:1" in shown.stderr) == (4, True), shown.stderr
    assert rest.asked == []
    user.run("admin", "tenants", "list", "--admin-url", rest.url, ONCELOG_URL="oncelog://127.0.0.1:1")
    assert len(rest.asked) == 1


def test_jobs_do_not_take_the_admin_url_of_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would delete its staging topics."""
    monkeypatch.setenv("ONCELOG_ADMIN_URL", "http://a:8080")
    monkeypatch.setenv("ONCELOG_URL", "oncelog://a:6650")
    assert Connection("oncelog://a:6650").variables()["ONCELOG_ADMIN_URL"] == "http://a:8080"
    assert "ONCELOG_ADMIN_URL" not in Connection("oncelog://b:6650").variables()


def test_produce_uses_the_current_context(user: User) -> None:
    """The address of the SDK, as that of REST."""
    user.ok("context", "add", "nowhere", "--url", "oncelog://127.0.0.1:1")
    user.ok("context", "use", "nowhere")
    result = user.run("produce", "orders", "-m", "text", "--timeout", "0.2")
    assert (result.exit_code, "127.0.0.1:1" in result.stderr) == (4, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "it must be an object with format, current and contexts"),
        ('{"format": 2}', "format is 2, and this version reads 1"),
        ('{"format": 1, "current": "prod", "contexts": {}}', "current is 'prod', which is not in contexts"),
        ('{"format": 1, "contexts": {"a": {"ulr": "b"}}}', "context a has unknown fields: ulr; known are admin_url"),
        ('{"format": 1, "contexts": {"a": {"url": 1}}}', "context a must be an object of texts"),
    ],
)
def test_broken_contexts_file_is_a_clear_error(user: User, text: str, why: str) -> None:
    """Of all commands that would use it; an address of an option does not need the file."""
    user.path.parent.mkdir(parents=True)
    user.path.write_text(text)
    for words in (["context", "list"], ["admin", "tenants", "list"], ["produce", "orders", "-m", "text"]):
        result = user.run(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"{user.path} is no contexts file: " in result.stderr
        assert why in result.stderr
    nowhere = user.run("produce", "orders", "-m", "a", "--url", "oncelog://127.0.0.1:1", "--timeout", "0.2")
    assert nowhere.exit_code == 4
