"""Services accept the keys, tokens and certificates that the command line creates."""

import ssl
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from oncelog.cli.app import app
from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings, load


def oncelog(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def done(*arguments: object) -> str:
    result = oncelog(*arguments)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_token_of_a_new_key_is_accepted_by_services(tmp_path: Path) -> None:
    """Everything that a new cluster with authentication needs. Only the user may read the secret files."""
    key, token = tmp_path / "token.key", tmp_path / "root.token"
    done("admin", "tokens", "keygen", "--to", key)
    done("admin", "tokens", "create", "--role", "root", "--expires", "12h", "--key-file", key, "--to", token)
    assert [mode_of(path) for path in (key, token)] == [0o600, 0o600]
    assert done("admin", "tokens", "show", token, "--key-file", key) == "root"
    settings = {"ONCELOG_AUTH_KEY_FILE": key, "ONCELOG_AUTH_TOKEN_FILE": token, "ONCELOG_AUTH_SUPERUSERS": "root"}
    Security.of(load(MetadataSettings, {name: str(value) for name, value in settings.items()}))
    other = tmp_path / "other.key"
    done("admin", "tokens", "keygen", "--to", other)
    assert oncelog("admin", "tokens", "show", token, "--key-file", other).exit_code == 1


def test_secrets_are_printed_without_other_text(tmp_path: Path) -> None:
    """For `$(…)` in a shell. No two keys are equal."""
    first, second = (done("admin", "tokens", "keygen") for _ in range(2))
    assert first != second
    (tmp_path / "key").write_text(first)
    assert done("admin", "tokens", "create", "--role", "r", "--key-file", tmp_path / "key").count(".") == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--role", "a/b"], "role"),
        (["--role", "r", "--expires", "30"], "not a valid duration"),
        (["--role", "r", "--expires", "0d"], "not a valid duration"),
    ],
)
def test_wrong_arguments_are_explained(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """In one sentence."""
    done("admin", "tokens", "keygen", "--to", tmp_path / "key")
    result = oncelog("admin", "tokens", "create", *arguments, "--key-file", tmp_path / "key")
    assert result.exit_code == 1
    assert complaint in result.output


def test_certificates_are_accepted_by_services_and_renewed_by_the_same_ca(tmp_path: Path) -> None:
    """Clients keep the CA that they have."""
    made = tmp_path / "made"
    create = ("admin", "certificates", "create", "--dir", made, "--dns", "oncelog.example", "--dns", "192.0.2.7")
    done(*create)
    ca, first = (made / "ca.crt").read_bytes(), (made / "tls.crt").read_bytes()
    done(*create)
    assert (made / "ca.crt").read_bytes() == ca
    assert (made / "tls.crt").read_bytes() != first
    assert [mode_of(made / name) for name in ("ca.key", "tls.key")] == [0o600, 0o600]
    files = {"CERTIFICATE": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}
    Security.of(load(MetadataSettings, {f"ONCELOG_TLS_{name}_FILE": str(made / file) for name, file in files.items()}))


@pytest.mark.parametrize(
    ("name", "fits"), [("oncelog", True), ("oncelog.example", True), ("192.0.2.7", True), ("another.example", False)]
)
def test_certificate_is_valid_for_its_names_only(tmp_path: Path, name: str, fits: bool) -> None:
    """A strict client, like those of other languages, accepts it for each of its names."""
    done(
        "admin", "certificates", "create", "--dir", tmp_path, "--dns", "oncelog.example", "--dns", "192.0.2.7"
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=name)
    answering = server.wrap_bio(to_server, to_client, server_side=True)

    def shake() -> None:
        for _ in range(4):
            for side in (asking, answering):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass  # let the other side run

    if fits:
        shake()
        assert asking.cipher()
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            shake()


def test_incomplete_ca_and_invalid_names_are_refused(tmp_path: Path) -> None:
    """Silently creating another CA would lock out every client."""
    done("admin", "certificates", "create", "--dir", tmp_path)
    (tmp_path / "ca.key").unlink()
    assert "one of ca.crt and ca.key" in oncelog("admin", "certificates", "create", "--dir", tmp_path).output
    assert oncelog("admin", "certificates", "create", "--dir", tmp_path / "x", "--dns", "a b").exit_code == 1


def test_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    """All tokens that it signed would become invalid."""
    key = tmp_path / "token.key"
    done("admin", "tokens", "keygen", "--to", key)
    before = key.read_bytes()
    refused = oncelog("admin", "tokens", "keygen", "--to", key)
    assert refused.exit_code == 1
    assert f"{key} exists" in refused.output
    assert "remove it first" in refused.output
    assert key.read_bytes() == before


@pytest.mark.parametrize("present", [["tls.crt", "tls.key"], ["tls.key"]])
def test_certificate_of_another_ca_is_not_overwritten(tmp_path: Path, present: list[str]) -> None:
    """Clients that trust the other CA could no longer connect."""
    for name in present:
        (tmp_path / name).write_text("of another CA")
    refused = oncelog("admin", "certificates", "create", "--dir", tmp_path)
    assert refused.exit_code == 1
    assert f"{tmp_path} has {' and '.join(present)} but no CA" in refused.output
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(present, "of another CA")


def test_commands_do_not_send_a_token_unencrypted(tmp_path: Path) -> None:
    """The command sends no request to the cluster at all."""
    (tmp_path / "token").write_text("a.b.c")
    for command in (
        ("admin", "tenants", "list", "--admin-url", "http://192.0.2.7:8080"),
        ("read", "t", "--url", "oncelog://192.0.2.7:6650"),
    ):
        result = oncelog(*command, "--token-file", tmp_path / "token")
        assert result.exit_code == 1
        assert "plain text" in " ".join(result.output.split())
