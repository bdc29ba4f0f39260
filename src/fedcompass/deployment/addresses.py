"""Addresses of servers: host:port, and whether a host is this machine."""

from typing import Annotated

from pydantic import AfterValidator

from fedcompass.errors import SettingsError

__all__ = ["Address", "is_loopback", "join_address", "split_address"]


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[::1]:port".

    Raises:
        SettingsError: it is neither.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingsError(f"address is {address!r}; allowed: host:port, such as fl.example:9092")
    return host.strip("[]"), int(port)


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
