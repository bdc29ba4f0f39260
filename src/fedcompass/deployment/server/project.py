"""The server's folder of a federation, as it is read."""

from pathlib import Path

from pydantic import field_validator

from fedcompass.deployment.addresses import Address, is_loopback, join_address, split_address
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.errors import ProjectError, SettingsError
from fedcompass.experiment import read_toml
from fedcompass.own_code import absolute, with_names
from fedcompass.settings import Settings

__all__ = ["RENEW", "NetworkSettings", "ServerProject"]

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""All addresses of this machine, and the loopback address by which such a listener is reached."""

RENEW = "run: fedcompass deploy init . --renew-certificate"
"""What to do about a server's certificate that cannot be used any more."""


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
        federation = with_names(record.pop("federation", {}), self._in_folder)
        self.federation = FederationSettings(**federation)
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

    def _in_folder(self, name: str) -> str:
        """A strategy of one's own is looked up in the federation's folder."""
        return absolute(name, self.folder)

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
