"""`deploy check`: each thing that can be wrong is told by name, with what to do about it."""

import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from fedcompass.aggregation.layout import Layout
from fedcompass.deployment.addresses import split_address
from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_key,
    make_server_certificate,
    make_site_certificate,
)
from fedcompass.deployment.operator.checks import CheckResult, check_server, check_site
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.running_server import RunningServer
from fedcompass.deployment.operator.site_admission import revoke_site
from fedcompass.deployment.server.grpc_transport import GrpcTransport
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.server.server_process import ServerExit
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import is_running, run_site
from fedcompass.deployment.supervision import Child, Program, free_port
from fedcompass.errors import ProjectError
from fedcompass.runs.files import FolderLock

APP = """
import torch
from fedcompass import Samples
from fedcompass.deployment import Trainer
def model():
    return torch.nn.Linear(3, 2)
def trainer(site):
    data = Samples(torch.zeros(10, 3), torch.zeros(10, dtype=torch.int64))
    return Trainer(data=data, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "federation"
    init_project(folder, f"127.0.0.1:{free_port()}", ["north"])
    for place in (folder, folder / "sites" / "north"):
        (place / "app.py").write_text(APP)
    return folder


@pytest.fixture
def site(project: Path) -> Path:
    return project / "sites" / "north"


def found(findings: Iterator[CheckResult]) -> dict[str, CheckResult]:
    return {finding.what: finding for finding in findings}


def address_of(site: Path) -> tuple[str, int]:
    return "127.0.0.1", split_address(SiteFolder(site).settings.server)[1]


@contextmanager
def tls_server(address: tuple[str, int], certificates: Path) -> Iterator[None]:
    """Something that speaks TLS at an address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    with socket.create_server(address) as listener:
        thread = threading.Thread(target=_accept, args=(listener, context), daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _accept(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
            secured.recv(4096)


@contextmanager
def serving(project: Path) -> Iterator[None]:
    """The federation's own server."""
    read = ServerProject(project)
    layout = Layout.of(torch.nn.Linear(3, 2))
    address = read.network.listen_address
    transport = GrpcTransport(read.state, read.roster, layout, read.identity, address)
    try:
        yield
    finally:
        transport.close()


def test_a_good_server_folder_has_nothing_wrong(project: Path) -> None:
    findings = found(check_server(project))
    assert {name: f.says for name, f in findings.items() if not f.ok} == {}
    assert findings["sites"].says == "1: north"
    assert findings["app"].says == "app.py makes a model of 8 parameters, has no test set"


def test_a_site_without_a_connection_is_told_so_and_its_app_is_still_tried(site: Path) -> None:
    findings = found(check_site(site))
    assert findings["connection"].ok is False
    assert "is the server running" in findings["connection"].says
    assert findings["admission"].ok is None
    assert findings["app and data"].says == "app.py makes a model of 8 parameters, 10 samples here"
    assert findings["key"].ok
    assert findings["certificate"].ok


def test_a_site_on_the_roster_is_admitted_and_one_that_was_revoked_is_not(
    project: Path, site: Path
) -> None:
    with serving(project):
        findings = found(check_site(site))
        assert {name: f.says for name, f in findings.items() if not f.ok} == {}
        assert findings["admission"].says == "the server admits this certificate"
    revoke_site(project, "north")
    with serving(project):
        finding = found(check_site(site))["admission"]
    assert finding.ok is False
    assert "this certificate is not on the server's roster" in finding.says


def test_a_server_of_another_authority_is_not_ours(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make_authority(other, "impostor")
    make_server_certificate(other, other, [])
    with tls_server(address_of(site), other):
        finding = found(check_site(site))["connection"]
    assert finding.ok is False
    assert "certificate that is not right" in finding.says


@pytest.mark.parametrize(
    ("days", "says"),
    [
        (30, "site.crt is not signed by ca.crt beside it, but of another federation or an earlier"),
        (-1, "site.crt expired on "),
    ],
)
def test_a_certificate_that_the_server_would_refuse_is_named_once_and_the_site_does_not_start(
    project: Path, site: Path, tmp_path: Path, days: int, says: str
) -> None:
    authority = project / "certificates"
    if days > 0:
        authority = tmp_path / "other"
        authority.mkdir()
        make_authority(authority, project.name)  # of the same name
    for name in ("site.key", "site.crt"):
        (site / name).unlink()
    make_site_certificate(authority, site, "north", days)
    with serving(project):
        findings = found(check_site(site))
    assert [name for name, finding in findings.items() if finding.ok is False] == ["certificate"]
    assert says in findings["certificate"].says
    assert "ask " in findings["certificate"].says
    assert findings["admission"].says == "not checked: see certificate"
    with pytest.raises(ProjectError, match=says):
        run_site(SiteFolder(site), print)
    assert not (site / "state").exists()


def test_a_site_that_runs_is_not_started_a_second_time(site: Path) -> None:
    folder = SiteFolder(site)
    folder.state.mkdir(mode=0o700)
    lock = FolderLock(folder.state)
    try:
        assert is_running(folder)
        with pytest.raises(ProjectError, match="site north is running already"):
            run_site(folder, print)
    finally:
        lock.release()
    assert not is_running(folder)


def test_a_site_without_its_certificate_does_not_start(site: Path) -> None:
    (site / "site.crt").unlink()
    with pytest.raises(ProjectError, match=r"site\.crt: No such file or directory; ask for it"):
        run_site(SiteFolder(site), print)


def _readable(project: Path) -> None:
    (project / "sites" / "north" / "site.key").chmod(0o640)


def _anothers_key(project: Path) -> None:
    key = project / "sites" / "north" / "site.key"
    key.unlink()
    make_key(key)


def _broken_app(project: Path) -> None:
    (project / "sites" / "north" / "app.py").write_text(APP + "\nraise ValueError('no scanner')\n")


def _no_data(project: Path) -> None:
    toml = project / "sites" / "north" / "site.toml"
    toml.write_text('data = "nowhere"\n' + toml.read_text())


def _no_such_device(project: Path) -> None:
    toml = project / "sites" / "north" / "site.toml"
    toml.write_text(toml.read_text().replace('device = "cpu"', 'device = "cuda:99"'))


def _bad_key(project: Path) -> None:
    (project / "sites" / "north" / "site.key").write_text("no key")


@pytest.mark.parametrize(
    ("break_it", "what", "says"),
    [
        (_readable, "key", "chmod 600"),
        (_bad_key, "key", "is damaged"),
        (_anothers_key, "key", "is not the key of site.crt"),
        (_broken_app, "app and data", "ValueError: no scanner"),
        (_no_data, "app and data", "not a folder"),
        (_no_such_device, "app and data", "device is 'cuda:99', which cannot be used: "),
    ],
)
def test_what_is_broken_at_a_site_is_named(
    project: Path, site: Path, break_it: Callable[[Path], None], what: str, says: str
) -> None:
    break_it(project)
    finding = found(check_site(site))[what]
    assert finding.ok is False
    assert says in finding.says


def test_an_expired_certificate_of_the_server_is_named(project: Path) -> None:
    private = project / "certificates"
    for name in ("server.key", "server.crt"):
        (private / name).unlink()
    make_server_certificate(private, private, ["127.0.0.1"], days=-1)
    finding = found(check_server(project))["certificate"]
    assert finding.ok is False
    assert "expired" in finding.says
    assert "deploy renew" in finding.says
    with pytest.raises(ProjectError, match="expired on"):
        RunningServer(ServerProject(project), project / "run").start()
    assert not (project / "state").exists()


@pytest.mark.parametrize(
    ("days", "ok", "says"),
    [
        (20, True, "1: north; certificates end soon: north on "),
        (-1, False, "certificates of sites ended or end soon: north on "),
    ],
)
def test_sites_whose_certificates_end_soon_are_listed_at_the_server(
    project: Path, site: Path, days: int, ok: bool, says: str
) -> None:
    for name in ("site.key", "site.crt"):
        (site / name).unlink()
    make_site_certificate(project / "certificates", site, "north", days)
    copy = project / "certificates" / "sites" / "north.crt"
    copy.write_bytes((site / "site.crt").read_bytes())
    finding = found(check_server(project))["sites"]
    assert finding.ok is ok
    assert finding.says.startswith(says)
    assert finding.says.endswith(f"; run: fedcompass deploy renew {project}")


def test_a_certificate_for_another_host_is_named(project: Path) -> None:
    toml = project / "deployment.toml"
    toml.write_text(toml.read_text().replace('address = "127.0.0.1', 'address = "fl.example'))
    finding = found(check_server(project))["certificate"]
    assert finding.ok is False
    assert "deploy renew" in finding.says


def test_a_port_in_use_and_too_few_sites_are_named(project: Path) -> None:
    toml = project / "deployment.toml"
    toml.write_text(toml.read_text().replace("min_clients = 1", "min_clients = 3"))
    with socket.create_server(("0.0.0.0", address_of(project / "sites" / "north")[1])):
        findings = found(check_server(project))
    assert "is a server running?" in findings["port"].says
    assert "would never start" in findings["sites"].says


def test_an_address_of_another_machine_to_listen_on_is_named(project: Path) -> None:
    toml = project / "deployment.toml"
    toml.write_text(toml.read_text().replace('listen = "0.0.0.0"', 'listen = "203.0.113.7"'))
    port = found(check_server(project))["port"]
    assert port.ok is False
    assert port.says.startswith("listen is '203.0.113.7', which is no address of this machine")


def test_a_wrong_setting_ends_the_check_with_its_name(project: Path, site: Path) -> None:
    (site / "site.toml").write_text('name = "north"\nserver = "127.0.0.1"\n')
    assert "allowed: host:port" in found(check_site(site))["settings"].says
    (project / "deployment.toml").write_text("[server]\nport = 1\n")
    assert found(check_server(project))["settings"].ok is False


def test_what_dies_after_a_run_is_over_does_not_begin_it_again(project: Path) -> None:
    """A finished run cannot be resumed: to try would tell a success as an error."""
    run = project / "run"
    run.mkdir()
    (run / "summary.json").write_text("{}")
    server = RunningServer(ServerProject(project), run)
    server._child = Child(Program("the server", "no.such.module", project / "log"))
    assert server.poll() == ServerExit(None, again=False)
    assert server.restarted == 0


def test_a_strategy_of_the_users_own_is_looked_up_in_the_federations_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (project / "own_rule.py").write_text(
        "from fedcompass.strategies import Recipe\nslow = Recipe('mine', 'compass')\n"
    )
    file = project / "deployment.toml"
    text = file.read_text()
    assert 'name = "fedcompass"' in text
    file.write_text(text.replace('name = "fedcompass"', 'name = "./own_rule.py:slow"'))
    strategy = ServerProject(project).federation.strategy
    sys.modules.pop("own_rule", None)
    assert strategy["name"] == f"{project}/own_rule.py:slow"
    assert "own_rule.slow" in found(check_server(project))["settings"].says
    sys.modules.pop("own_rule", None)
