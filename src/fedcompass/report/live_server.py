"""The page, live: served over HTTP and fed by server-sent events as the run's files grow.

It answers GET for two addresses and changes nothing. On a loopback address it needs no token and
refuses foreign Host headers, so that no web site can reach it through a name of its own. On other
addresses it requires the token.
"""

import json
import secrets
import socket
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.report.following import Following, Message
from fedcompass.report.page import content_policy, page
from fedcompass.report.run_files import RunFiles, plain_json

__all__ = ["LiveServer"]

_LOOK_EVERY = 0.4  # seconds between two looks at the files
_SIGN_OF_LIFE = 30  # looks without news after which a dead connection is noticed
_MOST_STREAMS = 32
_NAMES = ("localhost", "127.0.0.1", "[::1]")


class LiveServer(ThreadingHTTPServer):
    """Serves the page of some runs until it is shut down.

    Args:
        runs: what to show.
        host: the address to listen at; anything but this machine's own needs the token in `url`.
        port: 0 takes any that is free.

    Raises:
        SettingsError: the address cannot be listened at.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[RunFiles], host: str = "127.0.0.1", port: int = 8642) -> None:
        self.runs = list(runs)
        self.token = None if _is_this_machine(host) else secrets.token_urlsafe(24)
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self.stopping = threading.Event()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._host = host
        try:
            super().__init__((host, port), _Page)
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"cannot listen at {host}:{port}: {error}; choose another --host or --port "
                "(0: any that is free)"
            ) from None

    @property
    def url(self) -> str:
        """The page's address, with the token if there is one."""
        query = f"?token={self.token}" if self.token else ""
        host = socket.gethostname() if self._host in ("0.0.0.0", "::") else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/{query}"

    def shutdown(self) -> None:
        """End the streams, then stop serving."""
        self.stopping.set()
        super().shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: a browser that disconnects is no error."""


class _Page(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: LiveServer
    server_version = "fedcompass"
    sys_version = ""
    timeout = 30  # seconds for a request to come in, or for a stalled reader to take a message

    def do_GET(self) -> None:
        """The page at /, its news at /events, nothing else."""
        address = urlsplit(self.path)
        if not self._may_enter(parse_qs(address.query)):
            self._answer(HTTPStatus.FORBIDDEN, "wrong token or host; use the printed address\n")
        elif address.path == "/":
            self._answer(HTTPStatus.OK, self._html(), "text/html")
        elif address.path == "/events":
            self._stream()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "not found\n")

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815

    def _may_enter(self, query: dict[str, list[str]]) -> bool:
        token = self.server.token
        if token is not None:
            given = query.get("token", [""])[0]
            return secrets.compare_digest(given.encode(), token.encode())
        host = self.headers.get("Host", "")
        return host in {f"{name}:{self.server.server_port}" for name in _NAMES}

    def _html(self) -> str:
        facts = [_known_facts(run) for run in self.server.runs]
        return page(plain_json({"live": True, "runs": facts}), {}, live=True)

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self._end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _end_headers(self) -> None:
        self.send_header("Content-Security-Policy", content_policy(live=True))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _stream(self) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open\n")
            return
        try:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self._end_headers()
            self._tell(Following(self.server.runs, self.headers.get("Last-Event-ID")))
        finally:
            self.server.streams.release()

    def _tell(self, following: Following) -> None:
        """Send messages until all runs end, the browser disconnects or the server stops."""
        quiet = 0
        self.wfile.write(b"retry: 1000\n\n")
        while not self.server.stopping.is_set():
            quiet += 1
            for message in following.news():
                self.wfile.write(_as_event(message))
                quiet = 0
                if message.kind == "done":
                    return
            if quiet >= _SIGN_OF_LIFE:
                self.wfile.write(b": still here\n\n")
                quiet = 0
            self.server.stopping.wait(_LOOK_EVERY)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Log nothing: addresses contain the token."""


def _known_facts(run: RunFiles) -> dict[str, Any]:
    try:
        return run.facts()
    except RunFolderError:  # half written: the stream will bring them
        return {"name": run.path.name, "kind": run.kind, "finished": False}


def _as_event(message: Message) -> bytes:
    content = json.dumps(message.content, separators=(",", ":"), default=str)
    return f"event: {message.kind}\nid: {message.place}\ndata: {content}\n\n".encode()


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
