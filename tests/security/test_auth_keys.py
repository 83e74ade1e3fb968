"""Attack: the operator names a missing key file, and the attacker signs tokens with the path itself."""

from __future__ import annotations

import os
from pathlib import Path

import jwt
import pytest
import yaml  # type: ignore[import-untyped]

from keelbolt.auth import JWTAuthenticator
from keelbolt.errors import AuthMisconfigured, CredentialsRefused
from tests.integration.apcore.commands import keelbolt, nothing_runs
from tests.integration.apcore.serving import MODULE, extensions

ROOT = Path(__file__).parents[2]
SECRET = "a secret of the tests that is long enough"
FOREVER = 32_503_680_000


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with modules and a worker, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("KEELBOLT_", "JWT_")):
            monkeypatch.delenv(name)
    extensions(tmp_path / "mods", text__echo=MODULE)
    Path("agent.py").write_text("async def parrot(ctx):\n    await ctx.complete(ctx.user_text)\n")
    return tmp_path


SERVED = {"modules": ("--extensions-dir", "mods"), "worker": ("agent:parrot",)}

NOT_READABLE = (
    "/run/secrets/the-key-of-our-issuer-in-production",
    "./keys/the-key-of-our-issuer-in-production",
    "keys/the-key-of-our-issuer-in-production",
    "file:the-key-of-our-issuer-in-production-as-text",
    "file:///run/secrets/the-key-of-our-issuer-in-production",
    "FILE:///run/secrets/the-key-of-our-issuer-in-production",
    "the-key-of-our-issuer-in-production.pem",
    "./mods",  # a directory
    "/dev/null",  # readable, and empty
    "/dev/shm/\0/the-key-of-our-issuer-in-production",
)


@pytest.mark.parametrize("key", [key for key in NOT_READABLE if "\0" not in key])
@pytest.mark.parametrize("kind", SERVED)
def test_an_unreadable_path_prevents_the_start(kind: str, key: str) -> None:
    with nothing_runs() as started:
        ran = keelbolt("serve", *SERVED[kind], "--auth-key", key)
    assert ran.exit_code != 0
    assert not started.servers
    assert "the key names a file" in ran.stderr
    assert key not in ran.output, "the value may be a secret"


@pytest.mark.parametrize("key", NOT_READABLE)
def test_a_path_is_never_the_secret(key: str) -> None:
    """The Python API refuses such paths, too."""
    with pytest.raises(AuthMisconfigured, match="the key names a file"):
        JWTAuthenticator(key)


async def test_the_path_can_not_sign_a_token(place: Path) -> None:
    """The file's contents verify tokens, its path does not."""
    path = place / "the-key-of-our-issuer-in-production"
    path.write_text(SECRET + "\n")
    checks = [JWTAuthenticator(name) for name in (str(path), path.name, f"file:{path}", f"file://{path}")]
    claims = {"sub": "alice", "exp": FOREVER}
    for check in checks:
        assert (await check.principal(jwt.encode(claims, SECRET, algorithm="HS256"))).owner == "alice"
        for name in (str(path), path.name, f"file:{path}"):
            with pytest.raises(CredentialsRefused):
                await check.principal(jwt.encode(claims, name.rjust(32), algorithm="HS256"))


def test_a_binary_key_file_is_read(place: Path) -> None:
    """UnicodeDecodeError is a ValueError, which was suppressed too."""
    (place / "key").write_bytes(bytes(range(128, 192)))
    with nothing_runs() as started:
        assert keelbolt("serve", "agent:parrot", "--auth-key", "./key").exit_code == 0
    [key] = started.only()[0]._resolver.authenticator._keys
    assert key.material == bytes(range(128, 192))


def test_bytes_are_the_key_itself() -> None:
    JWTAuthenticator(b"c2VjcmV0/c2VjcmV0+c2VjcmV0/c2VjcmV0+c2VjcmV0")


@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("name", ["JWT_KEY", "JWT_ISSUER", "JWT_AUDIENCE", "JWT_TENANT_CLAIM"])
@pytest.mark.parametrize("prefix", ["", "KEELBOLT_"])
def test_an_empty_variable_prevents_the_start(
    monkeypatch: pytest.MonkeyPatch, prefix: str, name: str, value: str
) -> None:
    if name != "JWT_KEY":
        monkeypatch.setenv("JWT_KEY", SECRET)
    monkeypatch.setenv(prefix + name, value)
    with nothing_runs() as started:
        ran = keelbolt("serve", *SERVED["modules"])
    assert (ran.exit_code, started.servers) == (1, [])
    assert f"{prefix}{name} is set but empty" in ran.stderr


@pytest.mark.parametrize("flag", ["--auth-key", "--auth-issuer", "--auth-audience", "--tenant-claim"])
@pytest.mark.parametrize("kind", SERVED)
def test_an_empty_flag_prevents_the_start(kind: str, flag: str) -> None:
    key = () if flag == "--auth-key" else ("--auth-key", SECRET)
    with nothing_runs() as started:
        ran = keelbolt("serve", *SERVED[kind], *key, flag, "")
    assert ran.exit_code != 0
    assert not started.servers


@pytest.mark.parametrize("claim", ["org", "realm.org"])
async def test_the_tenant_is_a_claim(monkeypatch: pytest.MonkeyPatch, claim: str) -> None:
    monkeypatch.setenv("KEELBOLT_JWT_TENANT_CLAIM", claim)
    with nothing_runs() as started:
        assert keelbolt("serve", "agent:parrot", "--auth-key", SECRET).exit_code == 0
    check = started.only()[0]._resolver.authenticator

    def token(**claims: object) -> str:
        return jwt.encode({"sub": "alice", "exp": FOREVER, **claims}, SECRET, algorithm="HS256")

    whole = {"org": "acme"} if claim == "org" else {"realm": {"org": "acme"}}
    assert (await check.principal(token(**whole))).tenant == "acme"
    for wrong in ({}, {"org": ""}, {"org": ["acme"]}, {"realm.org": "acme"}):
        with pytest.raises(CredentialsRefused):
            await check.principal(token(**wrong))


@pytest.mark.parametrize("claim", [".", "a.", "a..b"])
def test_a_tenant_claim_has_names(claim: str) -> None:
    ran = keelbolt("serve", "agent:parrot", "--auth-key", SECRET, "--tenant-claim", claim)
    assert ran.exit_code != 0
    assert "--tenant-claim" in ran.stderr


def test_a_tenant_claim_needs_a_key() -> None:
    ran = keelbolt("serve", "agent:parrot", "--tenant-claim", "org")
    assert ran.exit_code != 0
    assert "--auth-key is required" in ran.stderr


def test_a_short_secret_is_refused() -> None:
    ran = keelbolt("serve", "agent:parrot", "--auth-key", "x" * 31)
    assert ran.exit_code != 0
    assert "at least 32" in ran.stderr


def test_compose_requires_a_key_and_publishes_to_this_machine() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["agent"]
    assert service["environment"]["JWT_KEY"].startswith("${JWT_KEY:?")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
