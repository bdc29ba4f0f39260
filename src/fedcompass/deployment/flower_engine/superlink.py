"""Flower's SuperLink, closed to all but the sites' keys and the holder of the control token.

Flower 1.41 serves sites, run control and app processes on one port, and its run control accepts
anybody: who reaches the port could start code on the server or register a key of his own. So
run control asks for a token here (Flower's own plugin interface), and app processes for a secret.
"""

import hmac
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from fedcompass.deployment.flower_engine.environment import flower_environment
from fedcompass.deployment.supervision import Program, die_with_parent

__all__ = ["BoundedBodies", "SuperLinkFiles", "main", "superlink_program"]

_TOKEN_FILE = "FEDCOMPASS_CONTROL_TOKEN_FILE"
_MOST_BODY = 16 << 20  # bytes; Flower sends arrays in pieces of 5 MiB


@dataclass(frozen=True, slots=True)
class SuperLinkFiles:
    """Where a SuperLink's secrets and certificates are, in private folders."""

    folder: Path
    certificates: Path

    @property
    def token(self) -> Path:
        """What run control asks for."""
        return self.folder / "control.token"

    @property
    def executor_secret(self) -> Path:
        """What app processes prove to know."""
        return self.folder / "executor.secret"

    @property
    def authority(self) -> Path:
        """The federation's CA certificate."""
        return self.certificates / "ca.crt"


def superlink_program(
    files: SuperLinkFiles, host: str, port: int, state: Path, *, insecure: bool = False
) -> Program:
    """The SuperLink to start; its database keeps registered sites over restarts."""
    arguments = ["--host", host, "--port", str(port), "--isolation", "process"]
    arguments += ["--superexec-auth-secret-file", str(files.executor_secret)]
    arguments += ["--disable-runtime-dependency-installation"]
    arguments += ["--database", str(state / "superlink.db")]
    if insecure:
        arguments += ["--insecure"]
    else:
        arguments += ["--ssl-ca-certfile", str(files.authority)]
        arguments += ["--ssl-certfile", str(files.certificates / "server.crt")]
        arguments += ["--ssl-keyfile", str(files.certificates / "server.key")]
        arguments += ["--enable-supernode-auth"]
    environment = flower_environment(state / "flower")
    return Program(
        "SuperLink",
        "fedcompass.deployment.flower_engine.superlink",
        state / "superlink.log",
        arguments,
        environment | {_TOKEN_FILE: str(files.token)},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the SuperLink until it is told to stop."""
    die_with_parent()
    token = Path(os.environ.pop(_TOKEN_FILE)).read_text(encoding="ascii").strip()
    command = import_module("flwr.superlink.cli.flower_superlink")  # its package has a namesake
    extensions = import_module("flwr.superlink.extensions")
    extensions.get_middleware = _bounded_bodies  # type: ignore[attr-defined]
    command.load_control_authn_plugin = lambda: _token_plugin(token)  # type: ignore[attr-defined]
    sys.argv = ["flower-superlink", *(sys.argv[1:] if arguments is None else arguments)]
    command.flower_superlink()


def _bounded_bodies() -> tuple[Any, ...]:
    from starlette.middleware import Middleware

    return (Middleware(BoundedBodies, most=_MOST_BODY),)


class BoundedBodies:
    """Refuses a request whose body is too large, or of unknown length, before it is read.

    Args:
        app: what the others are for.
        most: bytes of a body.
    """

    def __init__(self, app: Any, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 413, or hand the request on."""
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            headers = dict(scope["headers"])
            length = headers.get(b"content-length", b"")
            if not length.isdigit() or int(length) > self._most:
                await send({"type": "http.response.start", "status": 413, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self._app(scope, receive, send)


def _token_plugin(token: str):  # type: ignore[no-untyped-def]  # a class made when Flower is there
    from flwr.common.constant import ACCESS_TOKEN_KEY
    from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin

    class TokenPlugin(NoOpControlAuthnPlugin):
        """Lets in who knows the token, as the one account there is."""

        def validate_tokens_in_metadata(self, metadata):  # type: ignore[no-untyped-def]
            given = next((value for key, value in metadata if key == ACCESS_TOKEN_KEY), "")
            if not hmac.compare_digest(str(given).encode(), token.encode()):
                return False, None
            return super().validate_tokens_in_metadata(metadata)

        def refresh_tokens(self, metadata):  # type: ignore[no-untyped-def]
            return None, None

    return TokenPlugin()


if __name__ == "__main__":
    main()
