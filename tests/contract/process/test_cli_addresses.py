"""Addresses, times and homes that commands are given: a wrong one is one sentence, and no password is printed."""

from pathlib import Path

import pytest

from oncelog.client.network.addresses import parse_http_url, without_password
from tests.cluster.commands import run_command

_NOWHERE = "http://127.0.0.1:1"


def _failed(*words: str, admin_url: str = _NOWHERE) -> str:
    done = run_command("oncelog://127.0.0.1:1", admin_url, *words, "--timeout", "0.5")
    assert done.returncode in (1, 4)
    return done.stderr.decode()


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://127.0.0.1:abc", "http://127.0.0.1:99999", "http://", "ftp://x", "http://a b", "http://a\nb",
     "127.0.0.1:8080", "http://u:SECRET@h:1?x", "http://u:SEC/RET@h:p"],
)  # fmt: skip
def test_admin_url_that_is_none_is_refused_at_once(url: str) -> None:
    """`urlsplit` raises a plain ValueError for some, and httpx calls others a cluster that cannot be reached."""
    said = _failed("admin", "topics", "list", admin_url=url)
    assert said.startswith("error: --admin-url must be http[s]://HOST:PORT, not ")
    assert "[invalid_argument]" in said
    assert "SEC" not in said


def test_newline_at_the_end_of_the_variable_is_no_part_of_the_address() -> None:
    """`ONCELOG_ADMIN_URL=$(cat file)` has none, an env file or a Secret may have one."""
    assert parse_http_url(" http://127.0.0.1:8080/\n", "--admin-url") == "http://127.0.0.1:8080"
    said = _failed("admin", "topics", "list", admin_url=f"{_NOWHERE}\n")
    assert f"cannot reach {_NOWHERE} (" in said


@pytest.mark.parametrize(
    "words", [["admin", "topics", "list"], ["read", "t", "--url", "oncelog://u:SECRET@127.0.0.1:1"]]
)
def test_password_in_an_address_is_not_printed(words: list[str]) -> None:
    """It would be in logs of jobs and in bug reports."""
    said = _failed(*words, admin_url="http://u:SECRET@127.0.0.1:1")
    assert "127.0.0.1:1" in said
    assert "SECRET" not in said
    assert without_password("redis://:a/b@c@host:1/0") == "redis://…@host:1/0"
    assert without_password("http://host:1/x") == "http://host:1/x"


def test_context_keeps_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file would be as secret as the password, and `context list` shows it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for url in ("http://u:SECRET@h:1", "http://[::1"):
        done = run_command("", "", "context", "add", "x", "--admin-url", url)
        assert done.returncode == 1
        assert b"SECRET" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
@pytest.mark.parametrize("command", ["read", "admin subscriptions seek"])
def test_time_at_the_edge_of_the_calendar_is_a_time(command: str, time: str) -> None:
    """It has no counterpart in local time, which nobody needs: the command gets as far as the cluster."""
    option = ["t", "--from", time] if command == "read" else ["t", "s", "--to", time]
    assert "cannot" in _failed(*command.split(), *option)


def test_local_time_that_no_calendar_has_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """East of Greenwich, the first hours of the year 1 are in the year 0."""
    monkeypatch.setenv("TZ", "XXX-14")
    from time import tzset

    tzset()
    try:
        assert "--from must be" in _failed("read", "t", "--from", "0001-01-01T00:00:00")
    finally:
        monkeypatch.undo()
        tzset()


def test_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a random user id: only the commands of contexts need a home, and name what to set."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")  # what a look-up without HOME and without an entry of the user ends with
    assert "cannot reach" in _failed("admin", "topics", "list")
    done = run_command("", "", "context", "list")
    assert done.returncode == 1
    assert b"set HOME or XDG_CONFIG_HOME" in done.stderr
