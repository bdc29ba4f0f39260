"""Addresses of servers: host:port, and whether a host is this machine."""

import errno
import socket
from typing import Annotated

from pydantic import AfterValidator

from fedcompass.errors import SettingsError

__all__ = [
    "WILDCARDS",
    "Address",
    "is_loopback",
    "join_address",
    "listening_problem",
    "split_address",
]

WILDCARDS = ("0.0.0.0", "::")
"""All addresses of this machine, to listen on; nobody can be reached at them."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[::1]:port".

    Raises:
        SettingsError: it is neither, or no address to reach somebody at.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise SettingsError(f"address is {address!r}; allowed: host:port, such as fl.example:9092")
    host = host.strip("[]")
    if host in WILDCARDS:
        raise SettingsError(
            f"address is {address!r}, which nobody can reach; allowed: host:port by which the "
            "sites reach the server, such as fl.example:9092"
        )
    return host, int(port)


def _checked(address: str) -> str:
    split_address(address)
    return address


Address = Annotated[str, AfterValidator(_checked)]
"""A setting that is host:port."""


def is_loopback(host: str) -> bool:
    """Whether an address never leaves this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")


def join_address(host: str, port: int) -> str:
    """Both as host:port, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_problem(host: str, port: int) -> str | None:
    """Why no server can listen there, and what to do about it; None: one can."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            return (
                f"listen is {host!r}, which is no address of this machine; allowed: one that is, "
                "or 0.0.0.0 for all"
            )
        return f"port {port} of {host} cannot be used: {error.strerror}; is a server running?"
    return None
