"""A worker without torch, in the place of `fedcompass.deployment.site.site_worker`."""

import argparse
import json
import socket
import time
from pathlib import Path
from typing import Any

from tests.faults.toy_training import toy_samples, toy_trained

from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import die_with_parent


def answer(job: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    seconds = settings["seconds_per_step"] * job["steps"]
    time.sleep(seconds)
    model = Path(job["model"]).read_bytes()
    trained = toy_trained(model, settings["number"], job["number"], job["steps"])
    Path(job["payload"]).write_bytes(trained)
    facts = {"steps_done": job["steps"], "seconds": seconds, "loss": 0.5}
    return {"task": job["task"], "samples": toy_samples(settings), **facts}


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--channel", type=int, required=True)
    given = parser.parse_args()
    channel = socket.socket(fileno=given.channel)
    settings = SiteFolder(given.folder).settings.settings

    def say(**record: Any) -> None:
        channel.sendall(json.dumps(record).encode() + b"\n")

    say(samples=toy_samples(settings), layout=settings["layout"])
    with channel.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            job = json.loads(line)
            if "stop" not in job:  # a task is over before it could be stopped
                print("task", job["number"], "of run", job["run"], flush=True)
                say(**answer(job, settings))
                print("task", job["number"], "is done", flush=True)


if __name__ == "__main__":
    main()
