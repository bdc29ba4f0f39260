"""A federation's folders as they are read: the server's project, and what a site was given."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.errors import ProjectError, SettingsError
from fedcompass.experiment import read_toml
from fedcompass.settings import Settings

__all__ = [
    "RENEW",
    "NetworkSettings",
    "ServerProject",
    "SiteFolder",
    "SiteSettings",
    "is_loopback",
    "join_address",
    "split_address",
    "valid_name",
]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""All addresses of this machine, and the loopback address by which such a listener is reached."""

RENEW = "run: fedcompass deploy init . --renew-certificate"
"""What to do about a server's certificate that cannot be used any more."""

Address = Annotated[str, Field(min_length=3)]


def valid_name(name: str) -> str:
    """A site's name if it can be one: it becomes a folder's.

    Raises:
        SettingsError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"site name {name!r}; allowed: 1 to 40 of a-z, 0-9, '.', '_', '-', "
            "a letter or digit first"
        )
    return name


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[::1]:port".

    Raises:
        SettingsError: it is neither.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingsError(f"address is {address!r}; allowed: host:port, such as fl.example:9092")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether an address never leaves this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")


def join_address(host: str, port: int) -> str:
    """Both as host:port, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class NetworkSettings(Settings):
    """Where the server is."""

    address: Address = "127.0.0.1:9092"
    """host:port by which the sites reach it; its certificate is for this host."""

    listen: str = "0.0.0.0"
    """The address of this machine to listen on; 0.0.0.0 is all of them, [::] all of IPv6."""

    insecure: bool = False
    """No TLS and no keys: only ever on one machine, to try things."""

    @property
    def port(self) -> int:
        """Where the server listens and the sites connect."""
        return split_address(self.address)[1]

    @property
    def listen_host(self) -> str:
        """The address to listen on; all of them becomes loopback where the sites connect there."""
        host, listen = split_address(self.address)[0], self.listen.strip("[]")
        if listen in _WILDCARDS and is_loopback(host):
            return "127.0.0.1" if host == "localhost" else host
        return listen

    @property
    def own_address(self) -> str:
        """host:port by which the server's own processes reach it, on this machine."""
        listen = self.listen_host
        return join_address(_WILDCARDS.get(listen, listen), self.port)

    @field_validator("address")
    @classmethod
    def _parsable(cls, address: str) -> str:
        split_address(address)
        return address

    @field_validator("listen")
    @classmethod
    def _without_port(cls, listen: str) -> str:
        if not listen or "/" in listen or (listen.count(":") == 1 or "]:" in listen):
            raise ValueError(
                f"listen is {listen!r}; allowed: an address of this machine without a port, such "
                "as 0.0.0.0, 10.0.0.5 or [::]; the port is the address's"
            )
        return listen


class SiteSettings(Settings):
    """A site's site.toml."""

    name: str
    """Its name in the federation; its key is registered under it."""

    server: Address
    """host:port of the server."""

    app: str = "app.py"
    """The federation's app.py, relative to this file."""

    data: str | None = None
    """The folder with the site's data, handed to `trainer(site)`; it never leaves the site."""

    device: str = "cpu"
    """Where to train: cpu, cuda, cuda:1, …"""

    threads: int | None = Field(default=None, ge=1)
    """Threads torch may use; None leaves it to torch."""

    client_app: str = "fedcompass.deployment.flower_engine.client_app:app"
    """The ClientApp that answers; one of your own as module:name."""

    idle_seconds: float | None = Field(default=None, gt=0, le=3)
    """How often the SuperNode asks for work when it has none. Flower's own 3 seconds is a fixed
    number in its code; anything below reaches into Flower, and makes tasks start sooner."""

    insecure: bool = False
    """No TLS and no key: only on the machine of the server."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Whatever `trainer(site)` wants to know, as `site.settings`."""

    @field_validator("name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        return valid_name(name)

    @field_validator("server")
    @classmethod
    def _parsable(cls, server: str) -> str:
        split_address(server)
        return server


class ServerProject:
    """The folder `deploy init` wrote, on the server.

    Raises:
        ProjectError: it is not one, or a secret can be read by others.
        SettingsError: its deployment.toml is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        file = self.folder / "deployment.toml"
        if not file.is_file():
            raise ProjectError(
                f"{folder} has no deployment.toml; `fedcompass deploy init {folder}` makes one"
            )
        record = read_toml(file)
        for name in ("server", "federation"):
            if not isinstance(record.get(name, {}), dict):
                raise SettingsError(
                    f"{file}: {name} is {record[name]!r}; allowed: a table, [{name}]"
                )
        self.network = NetworkSettings(**record.pop("server", {}))
        self.federation = FederationSettings(**record.pop("federation", {}))
        if record:
            raise SettingsError(
                f"{file} has [{next(iter(record))}]; allowed tables: [server], [federation]"
            )
        host, _ = split_address(self.network.address)
        if self.network.insecure and not is_loopback(host):
            raise SettingsError(
                f"insecure is true but the address is {self.network.address!r}; allowed without "
                "TLS: 127.0.0.1 only"
            )
        if self.network.insecure and not is_loopback(self.network.listen_host):
            raise SettingsError(
                f"insecure is true but listen is {self.network.listen!r}; allowed without TLS: "
                "127.0.0.1 only, or leave it out"
            )

    @property
    def app(self) -> Path:
        """The federation's app.py."""
        return self.folder / "app.py"

    @property
    def secrets(self) -> Path:
        """Certificates, token and secret; private."""
        return self.folder / "server"

    @property
    def state(self) -> Path:
        """The SuperLink's database and the logs; private."""
        return self.folder / "state"

    def check_secrets(self) -> None:
        """Refuse secrets that others can read."""
        for name in ("control.token", "executor.secret"):
            check_private(self.secrets / name)
        if not self.network.insecure:
            check_private(self.secrets / "server.key")

    def public_keys(self) -> dict[str, Path]:
        """The registered sites' public keys, by name."""
        return {path.stem: path for path in sorted((self.folder / "keys").glob("*.pub"))}


class SiteFolder:
    """The folder a site was given.

    Raises:
        ProjectError: it is not one.
        SettingsError: its site.toml is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        file = self.folder / "site.toml"
        if not file.is_file():
            raise ProjectError(f"{folder} has no site.toml; give the folder the server sent you")
        self.settings = SiteSettings(**read_toml(file))
        host, _ = split_address(self.settings.server)
        if self.settings.insecure and not is_loopback(host):
            raise SettingsError(
                f"{file}: insecure is true but the server is {self.settings.server!r}; allowed "
                "without TLS: 127.0.0.1 only"
            )

    @property
    def app(self) -> Path:
        """The federation's app.py."""
        return self.folder / self.settings.app

    @property
    def data(self) -> Path | None:
        """The folder with the site's data."""
        return None if self.settings.data is None else self.folder / self.settings.data

    @property
    def authority(self) -> Path | None:
        """The federation's CA certificate."""
        return None if self.settings.insecure else self.folder / "ca.pem"

    @property
    def key(self) -> Path | None:
        """The site's private key."""
        return None if self.settings.insecure else self.folder / "site.key"

    @property
    def state(self) -> Path:
        """Socket and logs; private."""
        return self.folder / "state"
