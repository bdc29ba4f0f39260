"""`fedcompass deploy check`: what is wrong with a set-up, before a run finds out."""

import errno
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedcompass import __version__
from fedcompass.deployment.addresses import split_address
from fedcompass.deployment.flower_engine.site_checks import (
    check_admission,
    check_clock,
    read_private_key,
)
from fedcompass.deployment.operator.certificates import check_dates, read_certificate
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.project import RENEW, ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder, SiteSettings
from fedcompass.errors import FedcompassError, MissingExtra, ProjectError
from fedcompass.own_code import short

__all__ = ["CheckResult", "check_server", "check_site"]

_SOON = timedelta(days=30)
_SPACE = 1 << 30  # bytes
_CONNECT = 10.0  # seconds to wait for a connection
_FLOWER = ("1.41.", "fedcompass deploys on flwr 1.41")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found.

    what: its name.
    ok: None where it could not be made.
    says: the facts, or what is wrong and what to do.
    """

    what: str
    ok: bool | None
    says: str


def check_site(folder: Path) -> Iterator[CheckResult]:
    """Look at a site's folder, key, certificate, connection, clock, app and data, in this order."""
    yield from _versions()
    try:
        site = SiteFolder(folder)
    except FedcompassError as error:
        yield CheckResult("settings", False, str(error))
        return
    yield CheckResult("settings", True, f"site {site.settings.name} of {site.settings.server}")
    if site.key is not None and site.authority is not None:
        yield _finding("key", lambda: _key(site.key))
        yield _finding("certificate", lambda: _certificate(site.authority))
    connected = _finding("connection", lambda: _connection(site.settings.server, site.authority))
    yield connected
    if connected.ok:
        yield _finding("clock", lambda: check_clock(site.settings.server, site.authority))
        if _runs(site):
            yield CheckResult("admission", None, "not checked: this site is running")
        elif site.key is not None:
            yield _finding("admission", lambda: check_admission(site))
    else:
        for what in ("clock", "admission"):
            yield CheckResult(what, None, "not checked: no connection to the server")
    if site.settings.client_app != SiteSettings.model_fields["client_app"].default:
        yield _finding("client app", lambda: _client_app(site))
    yield _finding("app and data", lambda: _site_app(site))


def check_server(folder: Path) -> Iterator[CheckResult]:
    """Look at the server's folder, secrets, certificate, port, sites, app and disk."""
    yield from _versions()
    try:
        project = ServerProject(folder)
    except FedcompassError as error:
        yield CheckResult("settings", False, str(error))
        return
    network = project.network
    name = short(project.federation.chosen_strategy().name)
    yield CheckResult("settings", True, f"{name}, sites connect to {network.address}")
    yield _finding("secrets", lambda: _secrets(project))
    if not network.insecure:
        yield _finding("certificate", lambda: _server_certificate(project))
        yield _finding("sites", lambda: _sites(project))
    yield _finding("port", lambda: _port(project))
    yield _finding("disk", lambda: _disk(project.folder))
    yield _finding("app", lambda: _server_app(project))


def _finding(what: str, look: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(what, True, look())
    except (FedcompassError, OSError) as error:
        return CheckResult(what, False, str(error))


def _connection(address: str, authority: Path | None) -> str:
    """Open a connection and, with TLS, see that the certificate is the federation's.

    Raises:
        ProjectError: it cannot be opened, or the other side is somebody else.
    """
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), _CONNECT) as plain:
            if authority is None:
                return f"{address} answers, without TLS"
            context = ssl.create_default_context(cafile=str(authority))
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return f"{address} answers, {secured.version()}, and is the federation's server"
    except ssl.SSLCertVerificationError as error:
        raise ProjectError(
            f"{address} shows a certificate that is not right: {error.verify_message}; "
            "check the server's address, its certificate (deploy check there) and this clock"
        ) from None
    except ssl.SSLError as error:
        raise ProjectError(f"{address} does not speak TLS: {error.reason}") from None
    except OSError as error:
        raise ProjectError(
            f"{address} cannot be reached ({error.strerror or error}); is the server running, "
            "and does a firewall here or there stop TCP to that port?"
        ) from None


def _versions() -> Iterator[CheckResult]:
    try:
        flower = version("flwr")
    except PackageNotFoundError:
        yield CheckResult("version", False, str(MissingExtra("flwr", "deploy", "a deployment")))
        return
    start, why = _FLOWER
    says = f"fedcompass {__version__}, flwr {flower}"
    fits = flower.startswith(start)
    yield CheckResult(
        "version", fits, says if fits else f"{says}; {why}: reinstall fedcompass[deploy]"
    )


def _key(path: Path | None) -> str:
    assert path is not None
    check_private(path)
    key = read_private_key(path)
    return f"{path.name} is private, curve {key.curve.name}"


def _certificate(path: Path | None, remedy: str = "ask for a new one") -> str:
    assert path is not None
    facts = check_dates(path, remedy)
    left = facts.not_after - datetime.now(UTC)
    soon = f", in {left.days} days: renew it soon" if left < _SOON else ""
    return f"{path.name} is valid until {facts.not_after:%Y-%m-%d}{soon}"


def _runs(site: SiteFolder) -> bool:
    """Whether `fedcompass deploy site` has it; the server admits a key once at a time."""
    from fedcompass.deployment.operator.running_site import is_running

    return is_running(site)


def _client_app(site: SiteFolder) -> str:
    from fedcompass.deployment.flower_engine.own_client_app import load_client_app

    load_client_app(site.settings.client_app, site.folder)
    return f"{site.settings.client_app} is a ClientApp"


def _site_app(site: SiteFolder) -> str:
    from fedcompass.deployment.app.app_file import load_app
    from fedcompass.deployment.app.trainer import Site

    if site.data is not None and not site.data.is_dir():
        raise ProjectError(f"data is {str(site.data)!r}, which is not a folder; correct site.toml")
    settings = site.settings
    app = load_app(site.app)
    trainer = app.trainer(Site(settings.name, site.data, settings.device, settings.settings))
    return f"{_parameters(app)}, {trainer.samples:,} samples here"


def _parameters(app: Any) -> str:
    count = sum(parameter.numel() for parameter in app.model().parameters())
    return f"{app.path.name} makes a model of {count:,} parameters"


def _secrets(project: ServerProject) -> str:
    project.check_secrets()
    if (project.secrets / "ca.key").exists():
        check_private(project.secrets / "ca.key")
        return "private; ca.key is here: keep it offline once all sites are set up"
    return "private"


def _server_certificate(project: ServerProject) -> str:
    path = project.secrets / "server.pem"
    host, _ = split_address(project.network.address)
    says = _certificate(path, RENEW)
    names = read_certificate(path).names
    if host not in names:
        raise ProjectError(
            f"{path} is for {', '.join(names)}, but the address is {host!r}; {RENEW}"
        )
    return f"{says}, for {host}"


def _sites(project: ServerProject) -> str:
    from fedcompass.deployment.flower_engine.control import read_public_key

    keys = project.public_keys()
    for path in keys.values():
        read_public_key(path)
    if len(keys) < project.federation.min_clients:
        raise ProjectError(
            f"{len(keys)} sites have keys but min_clients is {project.federation.min_clients}: "
            "the run would never start"
        )
    return f"{len(keys)}: {', '.join(keys)}"


def _port(project: ServerProject) -> str:
    listen, port = project.network.listen_host, project.network.port
    try:
        family, kind, _, _, where = socket.getaddrinfo(listen, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ProjectError(
                f"listen is {listen!r}, which is no address of this machine; allowed: one that "
                "is, or 0.0.0.0 for all"
            ) from None
        raise ProjectError(
            f"port {port} of {listen} cannot be used: {error.strerror}; is a server running?"
        ) from None
    return f"{port} of {listen} is free"


def _disk(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    if free < _SPACE:
        raise ProjectError(f"{folder} has {free / 1e9:.1f} GB left; a run needs room to be safe")
    return f"{free / 1e9:.0f} GB free"


def _server_app(project: ServerProject) -> str:
    from fedcompass.deployment.app.app_file import load_app

    app = load_app(project.app)
    tests = app.test_set()
    measured = "measures by itself" if app.has("evaluate") else "has no test set"
    if tests is not None:
        measured = f"{len(tests):,} test samples"
    return f"{_parameters(app)}, {measured}"
