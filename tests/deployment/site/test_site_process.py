"""A site's process from its first line to its last: what it says, and that nothing is left."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

from fedcompass.deployment.operator.certificates import make_site_certificate
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.site.refused_certificate import in_words
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import is_running, worker_is_up
from fedcompass.privacy.account import PrivacyPlan
from fedcompass.privacy.account_file import AccountFile

PATIENCE = 120.0  # seconds; only a failing test waits so long

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


def test_a_site_without_a_server_says_so_once_warns_of_its_certificate_and_ends_in_order(
    tmp_path: Path,
) -> None:
    init_project(tmp_path / "f", "127.0.0.1:9", ["north"])
    site = SiteFolder(tmp_path / "f" / "sites" / "north")
    (site.folder / "app.py").write_text(APP)
    for name in ("site.key", "site.crt"):
        (site.folder / name).unlink()
    make_site_certificate(tmp_path / "f" / "certificates", site.folder, "north", days=20)
    command = [sys.executable, "-m", "fedcompass", "deploy", "site", str(site.folder)]
    log = tmp_path / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL) as running,
    ):
        try:
            wait(lambda: "no connection to the server" in log.read_text())
            assert worker_is_up(site)
            sleep(1.5)  # it tries again meanwhile
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0
        finally:
            running.kill()
    lines = log.read_text().splitlines()
    assert lines[0] == f"site north of 127.0.0.1:9; logs in {site.state}"
    assert [line for line in lines if "site.crt expires on" in line]
    assert sum("no connection to the server" in line for line in lines) == 1
    assert lines[-1] == "site north has left"
    assert not is_running(site)
    assert not worker_is_up(site)
    assert not using(site.folder)


def test_a_site_whose_budget_is_spent_says_so_at_every_start_and_ends_without_training(
    tmp_path: Path,
) -> None:
    init_project(tmp_path / "f", "127.0.0.1:9", ["north"])
    site = SiteFolder(tmp_path / "f" / "sites" / "north")
    (site.folder / "app.py").write_text(APP)
    (site.folder / "data").mkdir()
    account = site.folder / "data" / "privacy-account.json"
    plan = PrivacyPlan(
        epsilon=99.0, delta=1e-5, clip=1.0, noise=1.0, sample_rate=1.0, batch_size=8.0
    )
    AccountFile(account, plan).charge(3)
    settings = site.folder / "site.toml"
    budget = "\n[settings.privacy]\nepsilon = 10.0\n"
    settings.write_text("data = 'data'\n" + settings.read_text() + budget)
    command = [sys.executable, "-m", "fedcompass", "deploy", "site", str(site.folder)]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(
            r"site north has left: budget spent: epsilon is 8\.4 of 10, and one more step would "
            "exceed it",
            done.stderr.splitlines()[-1],
        )
        assert "steps from version" not in (site.state / "worker.log").read_text()
        assert not using(site.folder)


def test_a_server_of_another_authority_is_told_in_the_words_of_deploy_check() -> None:
    raw = (
        "no connection to the server: failed to connect to all addresses; last error: UNKNOWN: "
        "ipv4:127.0.0.1:9: Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:"
        "1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: unable to get local "
        "issuer certificate: OK"
    )
    assert in_words(raw, "fl.example:9") == (
        "no connection to the server: fl.example:9 shows a certificate that is not right: unable "
        "to get local issuer certificate; check the server's address, its certificate (deploy "
        "check there) and this clock"
    )
    away = "no connection to the server: failed to connect to all addresses; last error: refused"
    assert in_words(away, "fl.example:9") == away


def test_a_device_that_is_not_here_ends_a_site_with_one_line(tmp_path: Path) -> None:
    init_project(tmp_path / "f", "127.0.0.1:9", ["north"])
    site = SiteFolder(tmp_path / "f" / "sites" / "north")
    (site.folder / "app.py").write_text(APP)
    settings = site.folder / "site.toml"
    settings.write_text(settings.read_text().replace('device = "cpu"', 'device = "cuda:99"'))
    command = [sys.executable, "-m", "fedcompass", "deploy", "site", str(site.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: device is 'cuda:99', which cannot be used: [^\n]+; correct device in site\.toml; "
        r"allowed: cpu, or one that is here\n",
        done.stderr,
    )
    assert not using(site.folder)


def using(folder: Path) -> list[str]:
    """Processes that have a folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in command and path.parent.name != str(os.getpid()):
            found.append(command)
    return found


def wait(holds: object) -> None:
    assert callable(holds)
    until = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < until
        sleep(0.05)
