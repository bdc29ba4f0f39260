"""The texts that `fedcompass deploy init` writes: a first app, settings, units and read-mes.

Names in braces are filled in with `str.format`.
"""

__all__ = [
    "APP",
    "DEPLOYMENT_TOML",
    "GITIGNORE",
    "SERVER_README",
    "SITE_README",
    "SITE_TOML",
    "UNIT",
]

APP = '''\
"""What this federation trains. Server and sites have the same copy; change it to your own."""

from functools import partial

import torch
from torch import nn

from fedcompass import Samples, models
from fedcompass.data.catalogue import load
from fedcompass.deployment import Site, Trainer

data = load("mnist-mini")  # stands in for each site's own data: load yours from site.data


def model() -> nn.Module:
    return models.build("mnist_cnn", input_shape=data.input_shape, classes=data.classes)


def trainer(site: Site) -> Trainer:
    rows = torch.arange(site.settings["number"], len(data.train_targets), site.settings["sites"])
    return Trainer(
        data=Samples(data.train_inputs[rows], data.train_targets[rows]),
        optimizer=partial(torch.optim.Adam, lr=0.003),
        transform=data.normalize,
        batch_size=64,
    )


def test_set() -> Samples:  # the server measures merged models on it; leave it out if it has none
    return Samples(data.normalize(data.test_inputs), data.test_targets)
'''

GITIGNORE = """\
certificates/
sites/
state/
run*/
"""

DEPLOYMENT_TOML = """\
[server]
address = "{address}"       # how the sites reach this machine; the certificate is for this host
listen = "0.0.0.0"          # which of this machine's addresses to listen on; 0.0.0.0 is all, but
                            # where address is a loopback one (127.0.0.1), that one alone

[federation]
min_clients = {min_clients}             # it starts when so many are there; others may join later
max_updates = 50            # it ends after so many global updates,
max_seconds = 86400         # or so many seconds,
target = 0.95               # or at this accuracy, whichever comes first
task_timeout = 600          # seconds a site may keep a task before it counts as gone

[federation.strategy]
name = "fedcompass"         # see: fedcompass strategies
min_steps = 20              # the fewest and the most local steps a site is given
max_steps = 200
"""

SITE_TOML = """\
name = "{name}"
server = "{address}"
app = "app.py"
# data = "/path/to/this/site's/data"   # handed to trainer(site) as site.data; never sent anywhere
device = "cpu"              # or cuda, cuda:1, …
# threads = 4               # of torch

[settings]                  # whatever trainer(site) in app.py wants to know, as site.settings
number = {number}
sites = {sites}
"""

SERVER_README = """\
# The server of this federation

Sites connect to `{address}` (TCP, one port; nothing else has to be open).

1. Make `app.py` your own: the model, and how a site trains. Copy it to `sites/*/app.py` when it
   changes.
2. Set the strategy and when to stop in `deployment.toml`.
3. Hand each site its folder `sites/NAME/` over a channel you trust: it holds the site's private
   key. Then delete your copy of `site.key`; the server does not need it.
4. `fedcompass deploy check .` and then `fedcompass deploy server .`; the run is in `run/`.

Stop it with Ctrl-C, go on with `fedcompass deploy server . --resume`. After a crash the same
command goes on; no accepted update is lost. `fedcompass deploy status .` shows where it is.

A further site: `fedcompass deploy add-site . NAME`. To shut a site out: `fedcompass deploy
revoke-site . NAME`. Both work while the server runs. `fedcompass deploy readmit . NAME` lets a
site out of quarantine once its fault is mended.

Secret: everything under `certificates/` and `sites/` (and `certificates/ca.key` most of
all: who has it can pose as the server; best kept off this machine). Backup: `run/`,
`certificates/`, `roster.toml`, `app.py`, `deployment.toml`. Certificates last about 13 months:
`fedcompass deploy renew .` makes the next ones and says what to carry where.
"""

SITE_README = """\
# Site {name}

This folder makes this machine a site of a federation. It trains on your data here. It opens
connections to `{address}` only, and none are opened to it. The server cannot run code here: what
runs is the `app.py` in this folder and the fedcompass you installed.

What leaves this machine, and nothing else:

- the model as trained here (its weights and buffers);
- the number of samples, of steps done, the seconds they took, and the mean training loss;
- this site's name and the version of fedcompass;
- if something fails, one line of at most 300 characters: the error's own words. An error raised by
  `app.py` or a data loader can hold a path or a value; keep yours free of both.

1. Install the same version as the server's (Python 3.11 or newer), in a checkout of it:
   `pip install -c constraints.txt '.[deploy]'`.
2. Set `data` in `site.toml` to the folder of your data, and `device` if you have a GPU. Read
   `app.py`: it sees your data.
3. `chmod 600 site.key`. It is this site's identity: keep it here, give it to nobody.
4. `fedcompass deploy check .` says what is still wrong: certificate, connection, version, data.
5. `fedcompass deploy site .` runs it; it may be started before the server, stopped and restarted
   at any time.

When it warns that `site.crt` ends soon, the federation's operator sends a new one: put it here in
place of the old. It is not secret; `site.key` stays as it is.

To run it at every start of the machine: `fedcompass-site.service` is an example for systemd. Logs
are in `state/worker.log` (training); what happens to the connection is printed.
"""

UNIT = """\
[Unit]
Description=fedcompass {what}
After=network-online.target
Wants=network-online.target

[Service]
User=fedcompass
WorkingDirectory={folder}
ExecStart=/usr/bin/env fedcompass deploy {command}
Restart=on-failure
RestartSec=10
UMask=0077
LimitNOFILE=65536
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={written}
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""
