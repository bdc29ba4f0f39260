"""Writes a store's runs of networks with batch norm down as what they are: made with "moving".

    python scripts/pin_model_buffers.py STORE CONVERTED

Runs that were stored before `strategy.model_buffers` was a setting moved BatchNorm's statistics
without correction. Left to the default they would now stand for other runs. Each gets the setting
and with it another key; all other lines are copied as they are, and so are runs that name the
setting already, and FedAT's, which has none.
"""

import json
import sys
from pathlib import Path

from fedcompass.experiment import record_key
from fedcompass.finite_json import json_text
from fedcompass.own_code import short
from fedcompass.strategies import known_keys

_BATCH_NORM = ("resnet18", "unet3d", "efficientnet_b0", "quick_efficientnet_b0")


def converted(line: str) -> str:
    """A store's line with the setting, if its run is one of those."""
    values = json.loads(line)
    experiment = values.get("experiment")
    if experiment is None:  # the header
        return line
    network = short(experiment["model"]).rpartition(".")[2]  # one had a module's name once
    strategy = experiment["strategy"]
    has_setting = "model_buffers" in known_keys(strategy["name"])
    if network not in _BATCH_NORM or not has_setting or "model_buffers" in strategy:
        return line
    strategy["model_buffers"] = "moving"
    return json_text(values | {"key": record_key(experiment)}) + "\n"


def main() -> None:
    """Convert one store, beside which the new one is written."""
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/pin_model_buffers.py STORE CONVERTED")
    source, target = map(Path, sys.argv[1:])
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    new = [converted(line) for line in lines]
    target.write_text("".join(new), encoding="utf-8")
    changed = sum(one != other for one, other in zip(lines, new, strict=True))
    print(f"{target}: {changed} of {len(lines) - 1} runs have model_buffers = moving now")


if __name__ == "__main__":
    main()
