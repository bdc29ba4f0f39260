"""`fedcompass deploy check`: what is wrong with a set-up, before a run finds out."""

import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedcompass import __version__
from fedcompass.deployment.addresses import listening_problem, split_address
from fedcompass.deployment.certificate_dates import (
    WARNED_AHEAD,
    check_dates,
    check_signed_by,
    hosts_of,
    public_key_of,
    read_certificate,
)
from fedcompass.deployment.operator.certificates import read_key
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.refused_certificate import refused_certificate
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire.connections import Identity
from fedcompass.errors import FedcompassError, MissingExtra, ProjectError
from fedcompass.own_code import short

__all__ = ["CheckResult", "check_server", "check_site"]

_SPACE = 1 << 30  # bytes
_CONNECT = 10.0  # seconds to wait for a connection


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
    """Look at a site's folder, key, certificate, connection, admission, app and data, in order."""
    yield _version()
    try:
        site = SiteFolder(folder)
    except FedcompassError as error:
        yield CheckResult("settings", False, str(error))
        return
    settings, identity = site.settings, site.identity
    yield CheckResult("settings", True, f"site {settings.name} of {settings.server}")
    yield _finding("key", lambda: _key(identity))
    certificate = _finding("certificate", lambda: _certificates(identity))
    yield certificate
    if settings.proxy is None:
        connected = _finding("connection", lambda: _connection(settings.server, identity))
    else:
        connected = CheckResult("connection", None, f"through {settings.proxy}: see admission")
    yield connected
    if not certificate.ok:  # the server would refuse it in the handshake, without a reason
        yield CheckResult("admission", None, "not checked: see certificate")
    elif connected.ok is False:
        yield CheckResult("admission", None, "not checked: no connection to the server")
    else:
        yield _finding("admission", lambda: _admission(site))
    yield _finding("app and data", lambda: _site_app(site))


def check_server(folder: Path) -> Iterator[CheckResult]:
    """Look at the server's folder, secrets, certificate, port, sites, app and disk."""
    yield _version()
    try:
        project = ServerProject(folder)
    except FedcompassError as error:
        yield CheckResult("settings", False, str(error))
        return
    network = project.network
    name = short(project.federation.chosen_strategy().name)
    yield CheckResult("settings", True, f"{name}, sites connect to {network.address}")
    yield _finding("secrets", lambda: _secrets(project))
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


def _connection(address: str, identity: Identity) -> str:
    """Open a connection, and see that the server's certificate is the federation's.

    Raises:
        ProjectError: it cannot be opened, or the other side is somebody else.
    """
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), _CONNECT) as plain:
            context = ssl.create_default_context(cafile=str(identity.authority))
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return f"{address} answers, {secured.version()}, and is the federation's server"
    except ssl.SSLCertVerificationError as error:
        raise ProjectError(refused_certificate(address, error.verify_message)) from None
    except ssl.SSLError as error:
        raise ProjectError(f"{address} does not speak TLS: {error.reason}") from None
    except OSError as error:
        raise ProjectError(
            f"{address} cannot be reached ({error.strerror or error}); is the server running, "
            "and does a firewall here or there stop TCP to that port?"
        ) from None


def _admission(site: SiteFolder) -> str:
    """Ask the server for a model that no site has: only one on its roster hears that."""
    import asyncio

    from fedcompass.deployment.wire.site_calls import is_admitted

    asyncio.run(is_admitted(site.settings.server, site.identity, site.settings.proxy))
    return "the server admits this certificate"


def _version() -> CheckResult:
    try:
        says = f"fedcompass {__version__}, grpcio {version('grpcio')}"
    except PackageNotFoundError:
        return CheckResult("version", False, str(MissingExtra("grpc", "deploy", "a deployment")))
    return CheckResult("version", True, says)


def _key(identity: Identity) -> str:
    check_private(identity.key)
    key = read_key(identity.key)
    if key.public_key() != public_key_of(identity.certificate):
        raise ProjectError(
            f"{identity.key} is not the key of {identity.certificate.name}; ask for a new folder"
        )
    return f"{identity.key.name} is private, and the certificate's"


def _certificates(identity: Identity) -> str:
    authority, own = (_certificate(path) for path in (identity.authority, identity.certificate))
    remedy = "ask the federation's operator for a new one"
    check_signed_by(identity.authority, identity.certificate, remedy)
    return f"{own}; {authority}"


def _certificate(path: Path, remedy: str = "ask for a new one") -> str:
    end = check_dates(path, remedy).not_valid_after_utc
    left = end - datetime.now(UTC)
    soon = f", in {left.days} days: renew it soon" if left < WARNED_AHEAD else ""
    return f"{path.name} is valid until {end:%Y-%m-%d}{soon}"


def _site_app(site: SiteFolder) -> str:
    from fedcompass.deployment.app.app_file import load_app
    from fedcompass.deployment.app.trainer import Site

    site.check_data()
    settings = site.settings
    here = Site(settings.name, site.data, settings.device, settings.settings, site.state)
    here.check_device()
    app = load_app(site.app)
    trainer = app.trainer(here)
    return f"{_parameters(app)}, {trainer.samples:,} samples here"


def _parameters(app: Any) -> str:
    count = sum(parameter.numel() for parameter in app.model().parameters())
    return f"{app.path.name} makes a model of {count:,} parameters"


def _secrets(project: ServerProject) -> str:
    project.check_secrets()
    if (project.certificates / "ca.key").exists():
        check_private(project.certificates / "ca.key")
        return "private; ca.key is here: keep it offline once all sites are set up"
    return "private"


def _server_certificate(project: ServerProject) -> str:
    path, host = project.identity.certificate, project.network.host
    says, hosts = _certificate(path, project.renew), hosts_of(read_certificate(path))
    if host not in hosts:
        raise ProjectError(
            f"{path} is for {', '.join(hosts)}, but the address is {host!r}; {project.renew}"
        )
    return f"{says}, for {host}"


def _sites(project: ServerProject) -> str:
    names, needed = project.site_names(), project.federation.min_clients
    if len(names) < needed:
        raise ProjectError(
            f"{len(names)} sites are on the roster but min_clients is {needed}: the run would "
            "never start"
        )
    return f"{len(names)}: {', '.join(names)}{_ending_soon(project)}"


def _ending_soon(project: ServerProject) -> str:
    """The sites' certificates that end within weeks, by the copies here.

    Raises:
        ProjectError: some have ended.
    """
    now, files = datetime.now(UTC), sorted(project.site_certificates.glob("*.crt"))
    ends = {path.stem: read_certificate(path).not_valid_after_utc for path in files}
    soon = {name: end for name, end in ends.items() if end < now + WARNED_AHEAD}
    dated = ", ".join(f"{name} on {end:%Y-%m-%d}" for name, end in soon.items())
    if any(end <= now for end in soon.values()):
        raise ProjectError(f"certificates of sites ended or end soon: {dated}; {project.renew}")
    return f"; certificates end soon: {dated}; {project.renew}" if soon else ""


def _port(project: ServerProject) -> str:
    listen, port = project.network.listen_host, project.network.port
    if problem := listening_problem(listen, port):
        raise ProjectError(problem)
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
