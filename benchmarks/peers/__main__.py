"""The same FedAvg and FedAsync work in fedcompass, Flower's simulation and APPFL's simulator.

Each peer gets a virtual environment of its own under benchmarks/peers/.venvs, made by this script.
What is printed is seconds per local step over those of a bare PyTorch loop in the same process, so
that 1.00 means: no cost beside the training.

    python -m benchmarks.peers [repeats]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

from fedcompass.data.catalogue import load

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TORCH = next(
    line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("torch==")
)

PEERS: dict[str, list[list[str]]] = {
    "flower": [[TORCH, "flwr[simulation]==1.41.0"]],
    # Not all that APPFL asks for: its image-quality reports need torchvision, its remote
    # endpoints are not used here.
    "appfl": [
        [TORCH, "omegaconf", "colorama", "lz4", "zstd", "blosc", "python-xz", "requests", "wandb"],
        [TORCH, "opacus", "matplotlib", "scikit-learn", "pandas", "seaborn", "boto3", "grpcio"],
        [TORCH, "PyJWT[crypto]", "globus-sdk", "globus-compute-sdk", "proxystore", "ray"],
        ["--no-deps", "appfl==1.12.0"],
    ],
}
"""What is installed for each peer, one pip call per list."""

RUNS = {
    "fedcompass, FedAvg": ("fedcompass", ["fedavg"]),
    "fedcompass, FedAsync": ("fedcompass", ["fedasync"]),
    "Flower 1.41.0, FedAvg": ("flower", []),
    "APPFL 1.12.0, FedAvg": ("appfl", ["fedavg", "on"]),
    "APPFL 1.12.0, FedAvg, optimize_memory=False": ("appfl", ["fedavg", "off"]),
    "APPFL 1.12.0, FedAsync": ("appfl", ["fedasync", "on"]),
    "APPFL 1.12.0, FedAsync, optimize_memory=False": ("appfl", ["fedasync", "off"]),
}


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there."""
    if peer == "fedcompass":
        return Path(sys.executable)
    folder = HERE / ".venvs" / peer
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"installing {peer} into {folder} ...", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        for packages in PEERS[peer]:
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *packages], check=True)
        (folder / "complete").touch()
    return python


def ratio(peer: str, arguments: list[str], data: Path) -> float:
    """One run in a process of its own."""
    script = HERE / f"run_{peer}.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"WANDB_MODE": "disabled", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    done = subprocess.run(
        [python_of(peer), script, data, *arguments],
        env=environment,
        cwd=data.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{script.name} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["ratio"])


def main(repeats: int = 3) -> None:
    for peer in PEERS:
        python_of(peer)
    found: dict[str, list[float]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "mnist-mini.npz"
        mini = load("mnist-mini")
        np.savez(data, x=mini.train_inputs.numpy().squeeze(1), y=mini.train_targets.numpy())
        for _ in range(repeats):  # in turns, so that a busy minute hits all of them
            for name, (peer, arguments) in RUNS.items():
                found[name].append(ratio(peer, arguments, data))
    print(f"seconds per step / bare PyTorch loop, median of {repeats} (least to most)")
    for name, ratios in found.items():
        print(f"  {name:<46} {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    print("  Flower has no asynchronous strategy.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
