"""gRPC with mutual TLS on one port: keepalive, size limits, and how a site calls out."""

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from fedcompass.deployment.addresses import listening_problem
from fedcompass.deployment.wire.decoding import MOST_MESSAGE_BYTES, PIECE_BYTES
from fedcompass.deployment.wire.limits import Limits
from fedcompass.errors import ProjectError

__all__ = ["SERVICE", "Identity", "listen", "open_channel"]

SERVICE = "fedcompass.wire.v1.Federation"
"""What the calls belong to, as federation.proto names it."""

_WINDOW = 4 << 20  # bytes of a stream that may be on their way; so much can wait in memory
_STREAMS = 32  # calls on one connection
_KEEPALIVE_MS = {"time": 10_000, "timeout": 5_000}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who one side of the wire is, and whom it trusts: three PEM files.

    authority: the federation's own CA.
    certificate, key: this side's, signed by it.
    """

    authority: Path
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """The three files' bytes.

        Raises:
            ProjectError: one cannot be read, or is empty.
        """
        return _content(self.authority), _content(self.certificate), _content(self.key)


def _content(path: Path) -> bytes:
    try:
        found = path.read_bytes()
    except OSError as error:
        raise ProjectError(f"{path}: {error.strerror}; ask for it again") from None
    if not found:  # gRPC would abort the process; a file that is being copied is empty for a moment
        raise ProjectError(f"{path} is empty; ask for it again")
    return found


def _shared_options() -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS["time"]),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS["timeout"]),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.bdp_probe", 0),  # it would let the window grow
        ("grpc.http2.lookahead_bytes", _WINDOW),
        ("grpc.http2.max_frame_size", PIECE_BYTES),
    ]


async def listen(handler: Any, address: str, identity: Identity, limits: Limits) -> tuple[Any, int]:
    """A started server that asks every caller for a certificate of the federation's CA.

    Certificates that change on disk are used for new connections from then on.

    Args:
        handler: of the calls.
        address: host:port, such as 0.0.0.0:9092 or [::]:9092; port 0: any that is free.
        identity: the server's.
        limits: on connections and handshakes.

    Returns:
        The server, and the port it listens at.

    Raises:
        ProjectError: the address is taken or none of this machine's, or a certificate is damaged.
    """
    credentials = _server_credentials(identity)
    options = [
        *_shared_options(),
        ("grpc.so_reuseport", 0),  # two servers must not share a port unnoticed
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEEPALIVE_MS["time"] // 2),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake * 1000)),
        ("grpc.max_allowed_incoming_connections", _most_connections(limits)),
        ("grpc.max_connection_idle_ms", int(limits.silence * 1000)),
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((handler,))
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        host, _, number = address.rpartition(":")
        problem = listening_problem(host.strip("[]"), int(number)) or (
            f"{identity.certificate} and {identity.key} are damaged or do not belong together"
        )
        raise ProjectError(f"cannot listen at {address}: {problem}")
    await server.start()
    return server, port


def _most_connections(limits: Limits) -> int:
    """Half of the files that this process may have open, at most: the run's own are files, too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.connections if files < 0 else min(limits.connections, files // 2)


def _server_credentials(identity: Identity) -> Any:
    """Credentials that read the identity's files again at each handshake."""
    used = identity.read()

    def configuration(files: tuple[bytes, bytes, bytes]) -> Any:
        authority, certificate, key = files
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def changed() -> Any:  # None: go on with the last; so does gRPC with what does not fit together
        nonlocal used
        try:
            found = identity.read()
        except ProjectError:
            return None
        if found == used:
            return None
        used = found
        return configuration(found)

    return grpc.dynamic_ssl_server_credentials(
        configuration(used), changed, require_client_authentication=True
    )


def open_channel(address: str, identity: Identity, proxy: str | None = None) -> Any:
    """A site's connection to the server, made when it is first used.

    Args:
        address: host:port by which the site reaches the server.
        identity: the site's.
        proxy: http://host:port of an HTTP CONNECT proxy; None: what `https_proxy` and `no_proxy`
            in the environment say.
    """
    authority, certificate, key = identity.read()
    options: list[tuple[str, int | str]] = [
        *_shared_options(),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
        ("grpc.enable_retries", 0),
    ]
    if proxy is not None:
        options.append(("grpc.http_proxy", proxy))
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.aio.secure_channel(address, credentials, options=options)
