"""The server's folder of a federation, as it is read."""

import re
from datetime import datetime
from functools import partial
from pathlib import Path

from pydantic import field_validator

from fedcompass.deployment.addresses import (
    WILDCARDS,
    Address,
    is_loopback,
    join_address,
    split_address,
)
from fedcompass.deployment.certificate_dates import expiry_warnings
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.wire.connections import Identity
from fedcompass.deployment.wire.payloads import Form
from fedcompass.deployment.wire.site_roster import RosterFile
from fedcompass.errors import ProjectError, SettingsError
from fedcompass.experiment import read_toml
from fedcompass.own_code import absolute, with_names
from fedcompass.settings import Settings

__all__ = ["NetworkSettings", "ServerProject", "check_is_project"]

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NO_RUNS = ("certificates", "sites", "state")


class NetworkSettings(Settings):
    """Where the server is."""

    address: Address = "127.0.0.1:9092"
    """host:port by which the sites reach it; its certificate is for this host."""

    listen: str = "0.0.0.0"
    """The address of this machine to listen on; 0.0.0.0 is all of them, [::] all of IPv6.

    Where the sites' address is a loopback one, all of them becomes that one.
    """

    updates: Form = "model"
    """How sites send updates: `model` is exact, `change-bfloat16` about half the bytes."""

    @property
    def host(self) -> str:
        """The name or address by which the sites reach it."""
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        """Where the server listens and the sites connect."""
        return split_address(self.address)[1]

    @property
    def listen_host(self) -> str:
        """The address to listen on; all of them becomes loopback where the sites connect there."""
        host, listen = self.host, self.listen.strip("[]")
        if listen in WILDCARDS and is_loopback(host):
            return "127.0.0.1" if host == "localhost" else host
        return listen

    @property
    def listen_address(self) -> str:
        """host:port to listen at."""
        return join_address(self.listen_host, self.port)

    @field_validator("listen")
    @classmethod
    def _without_port(cls, listen: str) -> str:
        if not listen or "/" in listen or (listen.count(":") == 1 or "]:" in listen):
            raise ValueError(
                f"listen is {listen!r}; allowed: an address of this machine without a port, such "
                "as 0.0.0.0, 10.0.0.5 or [::]; the port is the address's"
            )
        return listen


def check_is_project(folder: Path) -> None:
    """See that a folder is a federation's.

    Raises:
        ProjectError: it is a site's, or neither.
    """
    if (folder / "deployment.toml").is_file():
        return
    if (folder / "site.toml").is_file():
        raise ProjectError(f"{folder} is a site's folder; give the federation's, on the server")
    if (folder / "site.csr").is_file():
        raise ProjectError(
            f"{folder} has a request, and not yet what the operator hands over for it: send "
            "site.csr, and copy the files that come back into it"
        )
    raise ProjectError(
        f"{folder} has no deployment.toml; `fedcompass deploy init {folder}` makes one"
    )


class ServerProject:
    """The folder `deploy init` wrote, on the server.

    Raises:
        ProjectError: it is not one, or a secret can be read by others.
        SettingsError: its deployment.toml is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.app = self.folder / "app.py"
        self.certificates = self.folder / "certificates"  # the CA's, the server's; private
        self.site_certificates = self.certificates / "sites"  # the newest of each: NAME.crt
        self.roster = self.folder / "roster.toml"  # who may take part, by fingerprints
        self.sites = self.folder / "sites"  # what each site is handed, in NAME/; private
        self.state = self.folder / "state"  # tasks, receipts, models, the log; private
        file = self.folder / "deployment.toml"
        check_is_project(folder)
        record = read_toml(file)
        for name in ("server", "federation"):
            if not isinstance(record.get(name, {}), dict):
                raise SettingsError(
                    f"{file}: {name} is {record[name]!r}; allowed: a table, [{name}]"
                )
        if not self.roster.is_file():
            raise ProjectError(
                f"{folder} has no roster.toml: an earlier version made it, or it was removed; make "
                "a new folder with `fedcompass deploy init`, copy app.py, deployment.toml (without "
                "insecure) and the run folder there and hand the sites their new folders"
            )
        self.network = NetworkSettings(**record.pop("server", {}))
        # A strategy of one's own is looked up in the federation's folder.
        own = partial(absolute, folder=self.folder)
        self.federation = FederationSettings(**with_names(record.pop("federation", {}), own))
        if record:
            raise SettingsError(
                f"{file} has [{next(iter(record))}]; allowed tables: [server], [federation]"
            )

    def run_folder(self, name: str) -> Path:
        """Where a run of that name is, or will be.

        Raises:
            SettingsError: the name leads elsewhere, or to what is no run's.
        """
        if not _RUN.fullmatch(name) or name in _NO_RUNS:
            raise SettingsError(
                f"run is {name!r}; allowed: a name of letters, digits, '.', '_' and '-' other than "
                f"{', '.join(_NO_RUNS)}; the run's folder is made in {self.folder}"
            )
        return self.folder / name

    @property
    def identity(self) -> Identity:
        """Who the server is for its sites."""
        folder = self.certificates
        return Identity(folder / "ca.crt", folder / "server.crt", folder / "server.key")

    @property
    def renew(self) -> str:
        """What to do about a server's certificate that cannot be used any more."""
        return f"run: fedcompass deploy renew {self.folder}"

    def expiry_warnings(self, now: datetime) -> list[str]:
        """A line for each of the CA's, the server's and the sites' certificates that ends soon."""
        own = [self.identity.authority, self.identity.certificate]
        sites = sorted(self.site_certificates.glob("*.crt"))
        return expiry_warnings([*own, *sites], now, self.renew)

    def site_names(self) -> list[str]:
        """The names on the roster.

        Raises:
            ProjectError: it is missing or damaged.
        """
        return sorted(set(RosterFile(self.roster).roster.names.values()))

    def check_listed(self, site: str) -> None:
        """See that a site is on the roster.

        Raises:
            ProjectError: it is not, or the roster is missing or damaged.
        """
        names = self.site_names()
        if site not in names:
            known = ", ".join(names) or "nobody"
            raise ProjectError(f"{site!r} is not on the roster of {self.folder}; on it: {known}")

    def check_secrets(self) -> None:
        """Refuse a key that others can read."""
        check_private(self.identity.key)
