"""The folder a site was given, as it is read."""

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fedcompass.deployment.addresses import Address
from fedcompass.deployment.certificate_dates import check_dates, check_signed_by, expiry_warnings
from fedcompass.deployment.wire.connections import Identity
from fedcompass.errors import ProjectError, SettingsError
from fedcompass.experiment import read_toml
from fedcompass.settings import Settings

__all__ = ["SiteFolder", "SiteSettings", "valid_name"]

_RENEWED = "ask the federation's operator for a new one"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


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


class SiteSettings(Settings):
    """A site's site.toml."""

    name: Annotated[str, AfterValidator(valid_name)]
    """Its name in the federation; its certificate is on the roster under it."""

    server: Address
    """host:port of the server."""

    app: str = "app.py"
    """The federation's app.py, relative to this file."""

    data: str | None = None
    """The folder with the site's data, handed to `trainer(site)`; it never leaves the site."""

    device: str = "cpu"
    """Where to train: cpu, cuda, cuda:1, …"""

    threads: int | None = Field(default=None, ge=1)
    """Threads torch may use; unset leaves it to torch."""

    proxy: str | None = None
    """http://host:port of an HTTP CONNECT proxy; unset: what `https_proxy` in the environment says.
    """

    settings: dict[str, Any] = Field(default_factory=dict)
    """Whatever `trainer(site)` wants to know, as `site.settings`."""


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
        if (self.folder / "ca.pem").exists() and not (self.folder / "site.crt").exists():
            raise ProjectError(
                f"{folder} is of an earlier version, which ran over Flower; ask the federation's "
                "operator for a new folder, and copy your settings into its site.toml"
            )
        self.settings = SiteSettings(**read_toml(file))
        data = self.settings.data
        self.app = self.folder / self.settings.app
        self.data = None if data is None else self.folder / data  # stays here
        self.state = self.folder / "state"  # answers without a receipt, models, logs; private
        self.identity = Identity(
            self.folder / "ca.crt", self.folder / "site.crt", self.folder / "site.key"
        )

    def check_data(self) -> None:
        """See that the site's data are where site.toml says, if it says anything.

        Raises:
            ProjectError: there is no such folder.
        """
        if self.data is not None and not self.data.is_dir():
            raise ProjectError(
                f"data is {str(self.data)!r}, which is not a folder; correct site.toml"
            )

    def check_certificates(self) -> None:
        """Refuse certificates that the server would refuse: it could not say why.

        Raises:
            ProjectError: one is not valid today, or the site's is of another federation.
        """
        authority, own = self.identity.authority, self.identity.certificate
        check_dates(authority, _RENEWED)
        check_dates(own, _RENEWED)
        check_signed_by(authority, own, _RENEWED)

    def expiry_warnings(self, now: datetime) -> list[str]:
        """A line for each certificate in the folder that ends soon."""
        files = [self.identity.authority, self.identity.certificate]
        return expiry_warnings(files, now, _RENEWED)
