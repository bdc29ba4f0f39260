"""Seconds per task beyond compute of a whole federation, beside stock Flower and APPFL's gRPC.

    python -m benchmarks.deployment              # models of 2.3, 45 and 400 MB
    python -m benchmarks.deployment --largest 50 --peers flower
    python -m benchmarks.deployment --sites 50   # so many sites on this machine, and nothing else
    python -m benchmarks.deployment --toy        # a tiny model without peers, to see that it works

One site, one merge a task, over TLS on loopback: ours with a certificate for the site and durable
on both sides; the peers as they come, with the server's certificate alone and nothing on disk. All
in one run, size by size, so that a busy machine is busy for all. `plain copy` moves the same bytes
both ways over unencrypted TCP, from disk to disk. APPFL is measured where
`python -m benchmarks.peers` has installed it.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.peers import deploy_flower
from benchmarks.peers.papers import make_papers
from benchmarks.training import SETTINGS, mnist_cnn
from benchmarks.whole_server import federation, resident_mb
from benchmarks.wire import plain_copy
from fedcompass import Samples
from fedcompass.data.catalogue import load
from fedcompass.deployment.supervision import free_port
from fedcompass.deployment.wire.payloads import payload_bytes, payload_pieces, read_payload
from fedcompass.training import LocalTrainer, Problem

SIZES = {"2.3 MB": 2_328_104, "45 MB": 45_000_000, "400 MB": 400_000_000}
GOALS = {"2.3 MB": 0.1, "45 MB": 0.5}
TASKS = {"2.3 MB": 18, "45 MB": 8, "400 MB": 3}  # of ours; the peers' are fewer
PATIENCE = 600  # seconds
APPFL = Path(__file__).parent / "peers" / ".venvs" / "appfl" / "bin" / "python"


def ours(size: int, tasks: int) -> list[float]:
    with federation(size, updates=tasks + 2) as run:
        return run.seconds_beyond_compute(warm=2)


def flower(size: int, tasks: int) -> list[float]:
    return deploy_flower.seconds_per_round(size, max(1, tasks // 6))


def appfl(size: int, tasks: int) -> list[float]:
    """Seconds of each update, in APPFL's own environment."""
    if not APPFL.exists():
        raise SystemExit("not installed; python -m benchmarks.peers installs it")
    with tempfile.TemporaryDirectory() as folder:
        make_papers(Path(folder))
        script, address = APPFL.parents[3] / "deploy_appfl.py", f"127.0.0.1:{free_port()}"
        with subprocess.Popen(
            [APPFL, script, str(size), str(max(2, tasks // 4)), folder, address],
            env={**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as client:
            try:
                told, complaint = client.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                raise SystemExit(f"not done after {PATIENCE} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(client.pid, signal.SIGKILL)  # its server, too
    if client.returncode != 0:
        raise SystemExit((complaint.strip().splitlines() or ["failed"])[-1])
    seconds: list[float] = json.loads(told.splitlines()[-1])
    return seconds


PEERS: dict[str, Callable[[int, int], list[float]]] = {"flower": flower, "appfl": appfl}


def compare(name: str, size: int, tasks: int, peers: list[str]) -> None:
    took = ours(size, tasks)
    middle, goal = statistics.median(took), GOALS.get(name)
    wanted = "" if goal is None else f", goal {goal:g}"
    print(
        f"{name}: ours {middle:.3f} s a task (least {min(took):.3f}, most {max(took):.3f}){wanted}"
    )
    with tempfile.TemporaryDirectory() as folder:
        plain = plain_copy(Path(folder), size)
    print(f"  plain copy            {plain:8.3f} s  {plain / middle:7.2f} of ours", flush=True)
    for peer in peers:
        try:
            found = statistics.median(PEERS[peer](size, tasks))
        except SystemExit as error:
            print(f"  {peer:<21} {error}", flush=True)
            continue
        print(f"  {peer:<21} {found:8.3f} s  {found / middle:7.1f} times ours", flush=True)


def tell_memory() -> None:
    """What a site has in memory, beside a process that has only loaded torch."""
    code = "import torch, time; torch.zeros(1); print(flush=True); time.sleep(60)"
    bare = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert bare.stdout is not None
        bare.stdout.readline()
        torch_alone = resident_mb(bare.pid)
    finally:
        bare.kill()
        bare.wait()
    with federation(SIZES["2.3 MB"], updates=6) as run:
        site, worker = run.peak_mb["site"], run.peak_mb["worker"]
    print(
        f"memory of a site with a model of 2.3 MB: process {site:.0f} MB, worker {worker:.0f} MB; "
        f"import torch alone {torch_alone:.0f} MB"
    )


def tell_bfloat16() -> None:
    """What an update in bfloat16 saves and costs, for a real change of the MNIST CNN."""
    data = load("mnist-mini")
    samples = Samples(data.normalize(data.train_inputs), data.train_targets)
    problem = Problem(model=mnist_cnn, clients=[samples], test=samples)
    trainer = LocalTrainer(problem, SETTINGS, seed=0)
    layout, start = trainer.layout, trainer.initial_state()
    end = trainer.train(start, client=0, local_round=0, steps=50, payload="model")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "payload"
        with path.open("wb") as file:
            file.writelines(payload_pieces(layout, "change-bfloat16", end, start))
        told = read_payload(path, layout, "change-bfloat16", start)
        share = path.stat().st_size / payload_bytes(layout, "model")
    wrong = (told.trainable - end.trainable).norm() / (end.trainable - start.trainable).norm()
    print(f"updates in bfloat16: {share:.2f} of the bytes; {wrong:.2%} of a change's norm is lost")


def many_sites(sites: int) -> None:
    """So many sites with a small model and a trainer that does next to nothing."""
    began = time.monotonic()
    with federation(100_000, updates=5, sites=sites) as run:
        took = run.seconds_beyond_compute(warm=1)
        print(
            f"{sites} sites, 5 merges of all of them: {len(run.updates())} updates accepted, "
            f"{statistics.median(took) / sites:.3f} s an update; server at most "
            f"{run.peak_mb['server']:.0f} MB; {time.monotonic() - began:.0f} s with start-up"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="a tiny model, no peers")
    parser.add_argument("--largest", type=float, default=400, help="leave out models of more MB")
    parser.add_argument("--smallest", type=float, default=0, help="and of less")
    parser.add_argument("--peers", default="flower,appfl", help="whom to measure; none: ''")
    parser.add_argument("--sites", type=int, help="only this: so many sites at once")
    given, _ = parser.parse_known_args()
    if given.sites:
        many_sites(given.sites)
    elif given.toy:
        compare("0.1 MB", 100_000, 3, [])
    else:
        peers = [peer for peer in given.peers.split(",") if peer]
        for name, size in SIZES.items():
            if given.smallest * 1e6 <= size <= given.largest * 1e6:
                compare(name, size, TASKS[name], peers)
        tell_memory()
        tell_bfloat16()


if __name__ == "__main__":
    main()
