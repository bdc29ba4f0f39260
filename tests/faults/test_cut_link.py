"""A site behind a link that is cut and restored: a network namespace of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.faults.loopback import Loopback
from tests.faults.tally import Row

from fedcompass.deployment.supervision import free_port

NET = f"10.211.{os.getpid() % 250}"
STRATEGY = {"name": "fedcompass", "min_steps": 5, "max_steps": 20}

pytestmark = [
    pytest.mark.slow_faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a network namespace"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2"),
]


def test_a_link_cut_for_a_moment_and_until_its_site_is_given_up(row: Row) -> None:
    with link() as (here, namespace):
        address = f"{NET}.1:{free_port()}"
        with Loopback({"near": 0.05, "far": 0.2}, address=address, strategy=STRATEGY) as federation:
            federation.start_site("near")
            with far_site(federation, namespace):
                federation.start_server()
                federation.until_more("accepted", "far")
                for cut in ("for a moment", "until it is given up"):
                    federation.until("far trains", lambda: federation.training("far"))
                    ip("link", "set", here, "down")
                    row.injected += 1
                    if cut == "for a moment":
                        federation.until_passed(4)
                    else:
                        federation.until_more("left", "far")
                        federation.until_more("accepted", "near")
                    ip("link", "set", here, "up")
                    federation.until_more("accepted", "far")
                federation.finish(row)


@contextmanager
def far_site(federation: Loopback, namespace: str) -> Iterator[None]:
    """The command a site's admin types, in the namespace."""
    command = [sys.executable, "-m", "fedcompass", "deploy", "site"]
    command = ["ip", "netns", "exec", namespace, *command, str(federation.site_folder("far"))]
    log = (federation.home / "far.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as site:
        try:
            yield
        finally:
            site.terminate()
            with suppress(subprocess.TimeoutExpired):
                site.wait(60)
            site.kill()  # its children die with it


@contextmanager
def link() -> Iterator[tuple[str, str]]:
    """A cable: its end here, and the namespace at the other end."""
    namespace, here, there = (f"fc{end}{os.getpid()}" for end in ("ns", "h", "t"))
    try:
        ip("netns", "add", namespace)
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", namespace)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot make a network namespace: {error.stderr.strip()}")
    try:
        ip("addr", "add", f"{NET}.1/24", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", namespace, "addr", "add", f"{NET}.2/24", "dev", there)
        ip("-n", namespace, "link", "set", there, "up")
        ip("-n", namespace, "link", "set", "lo", "up")
        yield here, namespace
    finally:
        ip("netns", "del", namespace)  # the cable goes with it


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
