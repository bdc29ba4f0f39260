"""`fedcompass deploy`: what is said, in one line, and what the exit code is."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.deploy_progress import DeployProgress
from fedcompass.deployment.operator.certificates import make_server_certificate
from fedcompass.deployment.operator.demo import DemoPlan, DemoRun
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.errors import FedcompassError, ProjectError, RunFolderError, SettingsError
from fedcompass.runs.files import FolderLock
from fedcompass.runs.journal import FileJournal
from fedcompass.runs.tally import Tally
from fedcompass.scheduling.commands import Commit, Fold
from fedcompass.scheduling.events import (
    ClientJoined,
    MergeFailed,
    UpdateArrived,
    UpdateRefused,
)

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


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["deploy", *arguments])
    if isinstance(result.exception, FedcompassError):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "federation"
    run("init", str(folder), "--address", "127.0.0.1:9092", "--site", "north", "--site", "south")
    return folder


def test_init_says_what_to_hand_over(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    code, told = run("init", str(folder), "--address", "fl.example:9092", "--site", "north")
    assert (code, told) == (
        0,
        f"hand over {folder}/sites/north; then read {folder}/README.md\n",
    )


def test_init_in_a_federation_says_how_to_add_a_site(project: Path) -> None:
    with pytest.raises(SettingsError, match=f"fedcompass deploy add-site {project} NAME"):
        run("init", str(project), "--site", "east")


def test_sites_are_added_and_revoked_and_certificates_renewed(project: Path) -> None:
    assert run("add-site", str(project), "east") == (0, f"hand over {project}/sites/east\n")
    assert run("revoke-site", str(project), "east") == (
        0,
        f"east is off the roster; `fedcompass deploy add-site {project} east` admits it anew\n",
    )
    with pytest.raises(ProjectError, match="'east' is not on the roster"):
        run("revoke-site", str(project), "east")
    assert run("renew", str(project)) == (0, "nothing expires within 56 days; --all renews all\n")
    code, told = run("renew", str(project), "--all")
    assert code == 0
    assert len(told.splitlines()) == 4  # CA, server, north, south


def test_a_site_keeps_its_own_key_and_both_sides_see_its_digest(
    project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "east"
    code, told = run("request", str(home))
    assert code == 0
    first, second = told.splitlines()
    assert first == f"send {home}/site.csr to the federation's operator; site.key stays here"
    digest = second.removeprefix("the key's digest, to compare by telephone: ")
    code, told = run("add-site", str(project), "east", "--request", str(home / "site.csr"))
    assert code == 0
    assert told == (
        f"hand over {project}/sites/east\n"
        f"but first compare the key's digest with east, by telephone: {digest}\n"
    )


def test_init_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--address is missing"):
        run("init", str(tmp_path / "new"))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("0.0.0.0:9092", "which nobody can reach; allowed: host:port by which the sites reach"),
        ("https://fl.example:9092", "allowed: host:port, such as fl.example:9092"),
    ],
)
def test_an_address_that_no_site_can_reach_is_refused(
    tmp_path: Path, address: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=f"address is '{address}'.*{told}"):
        run("init", str(tmp_path / "new"), "--address", address)
    assert not (tmp_path / "new").exists()


def test_the_request_of_another_site_is_refused(project: Path, tmp_path: Path) -> None:
    run("request", str(tmp_path / "east"))
    request = str(tmp_path / "east" / "site.csr")
    with pytest.raises(ProjectError, match="is the request of 'east', not of 'easr'"):
        run("add-site", str(project), "easr", "--request", request)


@pytest.mark.parametrize("name", ["certificates", "sites", "state", "../elsewhere", ".hidden", ""])
def test_a_run_is_put_into_no_folder_that_is_for_something_else(project: Path, name: str) -> None:
    before = sorted(project.rglob("*"))
    with pytest.raises(SettingsError, match="other than certificates, sites, state"):
        run("server", str(project), "--run", name)
    assert sorted(project.rglob("*")) == before


def test_the_folder_of_a_site_is_told_from_a_federations(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="is a site's folder; give the federation's"):
        run("status", str(project / "sites" / "north"))
    run("request", str(tmp_path / "east"))
    code, told = run("check", str(tmp_path / "east"))
    assert code == 1
    assert "has a request, and not yet what the operator hands over for it" in told


def test_check_marks_what_is_wrong_and_fails(project: Path) -> None:
    (project / "app.py").write_text(APP)
    (project / "certificates" / "server.key").chmod(0o644)
    code, told = run("check", str(project))
    assert code == 1
    wrong = [line for line in told.splitlines() if line.startswith("WRONG")]
    assert len(wrong) == 1
    assert "chmod 600" in wrong[0]
    assert "ok    app           app.py makes a model of 8 parameters" in told


def test_server_and_status_say_when_there_is_nothing(project: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run to resume"):
        run("server", str(project), "--resume")
    with pytest.raises(RunFolderError, match="has no run"):
        run("status", str(project))
    with pytest.raises(ProjectError, match=r"site\.toml"):
        run("site", str(tmp_path))


def test_a_server_refuses_a_finished_run_before_it_starts_anything(project: Path) -> None:
    (project / "run").mkdir()
    (project / "run" / "summary.json").write_text("{}")
    with pytest.raises(RunFolderError, match="is finished"):
        run("server", str(project))
    assert not (project / "state").exists()


def test_the_status_of_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(RunFolderError, match=f"^there is no folder {nowhere}; give the federation"):
        run("status", str(nowhere))


def test_progress_tells_where_a_run_resumed_who_is_back_and_counts_one_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    write_run(run)
    view, progress = RunView(run), DeployProgress()
    view.refresh()
    lines = [
        {"at": 8.0, "what": "resumed", "run": "run-1a2b", "version": 7, "events_repeated": 0},
        {"at": 8.5, "what": "returned", "who": "north", "node": 1},
        {"at": 9.0, "what": "merged", "version": 1, "contributors": []},
    ]
    with (run / "audit.jsonl").open("a") as file:
        file.writelines(f"\n{json.dumps(line)}\n" for line in lines)
    progress.show(view)
    assert capsys.readouterr().err.splitlines() == [
        "    8.0 s  run run-1a2b resumed at version 7",
        "    8.5 s  north returned",
        "    9.0 s  version 1  accuracy 75.0%  1 answer from 2 sites",
    ]


class Stopped:
    """Stands for a server's process, stopped by Ctrl-C soon after the start."""

    def __init__(self, _: Any, run: Path, **__: Any) -> None:
        self.restarted = 0
        self.looks = 0
        self.run = run

    def start(self) -> None:
        pass

    def poll(self) -> None:
        self.looks += 1
        if self.looks == 2:
            print("the port is taken", file=sys.stderr)
            with (self.run / "audit.jsonl").open("a") as file:
                file.write('\n{"at": 8.0, "what": "resumed", "version": 1}\n')
        if self.looks > 2:
            raise KeyboardInterrupt

    def stop(self) -> None:
        print("all processes have ended", file=sys.stderr)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcompass.deployment.operator.running_server.RunningServer", Stopped)
    monkeypatch.setattr("fedcompass.cli.deploy.stop_cleanly_at", lambda _: None)


def told(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and every line, on whichever stream."""
    result = CliRunner().invoke(app, ["deploy", *arguments])
    return result.exit_code, result.output.splitlines()


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(("run", "option"), [("run", ""), ("second", " --run second")])
def test_a_stopped_server_says_how_to_go_on_and_tells_no_old_news(
    project: Path, run: str, option: str
) -> None:
    write_run(project / run)
    code, lines = told("server", str(project), "--run", run, "--resume")
    assert (code, lines[:-1]) == (
        130,
        [
            "the port is taken",
            "waiting for sites at 127.0.0.1:9092",
            "    8.0 s  the run resumed at version 1",
            "all processes have ended",
            f"stopped. To go on: fedcompass deploy server {project}{option} --resume",
        ],
    )


@pytest.mark.usefixtures("stopped")
def test_a_server_warns_of_certificates_that_end_soon(project: Path) -> None:
    certificates = project / "certificates"
    (certificates / "server.key").unlink()
    make_server_certificate(certificates, certificates, ["127.0.0.1"], days=20)
    write_run(project / "run")
    _, lines = told("server", str(project), "--resume")
    assert sum("server.crt expires on" in line for line in lines) == 1


@pytest.mark.usefixtures("stopped")
def test_a_server_stopped_when_its_run_is_over_says_what_came_out(project: Path) -> None:
    write_run(project / "run")
    summary = {"reason": "target", "seconds": 9.0, "global_updates": 3, "target_metric": "accuracy"}
    (project / "run" / "summary.json").write_text(json.dumps(summary))
    code, lines = told("server", str(project), "--resume")
    assert code == 0
    assert lines[-1].startswith("over (target) after 9 s and 3 global updates; see ")
    assert not any("To go on" in line for line in lines)


def test_a_site_says_where_it_connects_and_that_it_has_left(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_site(_: Any, notice: Any) -> None:
        notice("connected as north")

    monkeypatch.setattr("fedcompass.deployment.site.site_process.run_site", run_site)
    site = project / "sites" / "north"
    code, lines = told("site", str(site))
    assert code == 0
    assert lines == [
        f"site north of 127.0.0.1:9092; logs in {site}/state",
        "connected as north",
        "site north has left",
    ]


def test_readmit_needs_a_run_that_goes_on(project: Path) -> None:
    with pytest.raises(RunFolderError, match="has no run"):
        run("readmit", str(project), "north")
    write_run(project / "run")
    with pytest.raises(ProjectError, match=r"'nort' is not on the roster of .*: north, south"):
        run("readmit", str(project), "nort")
    (project / "run" / "summary.json").write_text("{}")
    with pytest.raises(RunFolderError, match="is finished"):
        run("readmit", str(project), "north")


def write_run(folder: Path) -> None:
    folder.mkdir()
    (folder / "deployment.toml").write_text('target_metric = "accuracy"\n')
    lines = [
        {"at": 1.0, "what": "joined", "who": "north", "samples": 10},
        {"at": 5.0, "what": "accepted", "who": "north", "task": 1, "steps": 20, "seconds": 3.0},
        {"at": 5.0, "what": "merged", "version": 1, "contributors": [["north", 1, 0]]},
        {"at": 6.0, "what": "refused", "who": "south", "task": 2, "reason": "not-finite"},
    ]
    audit = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "audit.jsonl").write_text(audit + '{"at": 7.0, "what": "left", "w')
    write_journal(folder / "journal.jsonl")
    row = {"time": 5.0, "version": 1, "loss": 0.5, "accuracy": 0.75}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def write_journal(path: Path) -> None:
    """What happened, as the coordinator takes it down."""
    with closing(FileJournal(path, {})) as journal:
        journal.event(ClientJoined(at=1.0, client="north", samples=10))
        journal.event(UpdateArrived(at=5.0, client="north", task=1, steps_done=20))
        fold = Fold(at=5.0, client="north", task=1, buffer=1, staleness=0, steps=20, share=1.0)
        journal.command(fold)
        journal.command(Commit(at=5.0, buffers=(1,), version=1, contributions=(fold,)))
        journal.event(UpdateRefused(at=6.0, client="south", task=2, reason="not-finite"))


def test_status_counts_by_the_journal_and_not_by_the_audit_log(project: Path) -> None:
    write_run(project / "run")
    audit = project / "run" / "audit.jsonl"
    audit.write_text('{"at": 9.0, "what": "returned", "who": "north"}\n')
    _, told = run("status", str(project))
    assert told.splitlines() == [
        "not finished (no server is running), 9 s, version 1  accuracy 75.0%  loss 0.5",
        "site   last      updates  steps  at (s)",
        "north  returned        1     20       9",
    ]


def test_status_shows_each_site(project: Path) -> None:
    write_run(project / "run")
    code, told = run("status", str(project))
    assert code == 0
    assert told.splitlines() == [
        "not finished (no server is running), 6 s, version 1  accuracy 75.0%  loss 0.5",
        "site   last      updates  steps  at (s)",
        "north  accepted        1     20       5",
        "south  refused         0      0       6",
    ]


def test_status_says_that_a_sum_failed_who_took_part_and_what_is_lost(project: Path) -> None:
    write_run(project / "run")
    with (project / "run" / "audit.jsonl").open("w") as audit:
        facts = {"version": 2, "members": ["east", "north", "south"], "lost": [["south", 2]]}
        why = "a mask was left over"
        audit.write(json.dumps({"at": 8.0, "what": "sum failed", **facts, "why": why}) + "\n")
    journal = project / "run" / "journal.jsonl"
    with closing(FileJournal(journal, {}, resume_at=journal.stat().st_size)) as lines:
        fold = Fold(at=8.0, client="south", task=2, buffer=1, staleness=0, steps=20, share=1.0)
        lines.command(
            Commit(at=8.0, buffers=(1,), version=2, contributions=(fold,)), failed=why, lost=[2]
        )
        lines.event(MergeFailed(at=8.0, version=2))
    _, told = run("status", str(project))
    assert told.splitlines()[:2] == [
        "not finished (no server is running), 8 s, version 1  accuracy 75.0%  loss 0.5",
        "1 sum failed, 1 update lost; the last: 8.0 s  a sum of east, north, south failed; updates "
        "lost: south's 2: a mask was left over",
    ]


def test_status_knows_a_server_that_is_running(project: Path) -> None:
    write_run(project / "run")
    with FolderLock(project):
        _, told = run("status", str(project))
    assert told.startswith("not finished, 6 s, version 1")


def test_a_line_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    view = RunView(tmp_path / "run")
    assert len(view.refresh()) == 5
    assert view.refresh() == []
    with (tmp_path / "run" / "audit.jsonl").open("a") as file:
        file.write('ho": "north"}\n')
    assert view.refresh() == [{"at": 7.0, "what": "left", "who": "north"}]
    assert view.sites["north"].state == "left"
    assert (view.updates, view.tally.clients["south"].refused) == (1, 1)


def test_progress_says_of_which_version_an_accuracy_is(tmp_path: Path) -> None:
    """Measuring takes longer than merging: the newest accuracy may be of an older model."""
    from fedcompass.cli.deploy_progress import _line

    metrics = {"version": 6, "accuracy": 0.5}
    view = RunView(tmp_path, tally=Tally(version=7), seconds=3.0, metrics=metrics)
    assert "version 7  accuracy 50.0% (of version 6)  0 answers" in _line(view)
    view.metrics["version"] = 7
    assert "version 7  accuracy 50.0%  0 answers" in _line(view)


class CannedDemo:
    """A demo that is over at once: fedavg misses the target with seed 4."""

    def __init__(self, plan: DemoPlan, folder: Path, tell: Any, watch: Any) -> None:
        self.plan, self.folder = plan, folder

    def __enter__(self) -> "CannedDemo":
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self) -> list[DemoRun]:
        return [self._run(name) for name in self.plan.strategies]

    def _run(self, name: str) -> DemoRun:
        seed, slow = self.plan.seed, name == "fedavg"
        sites = {
            f"site-{i}": {"updates": 3, "steps": 9, "idle_share": 0.0, "overhead_share": i / 100}
            for i in (1, 4)
        }
        summary: dict[str, Any] = {
            "target": 0.8,
            "time_to_target": None if slow and seed == 4 else (30.0 if slow else 10.0 + seed),
            "arrival_spread": None if slow else 0.02,
            "arrival_spreads": [],
            "global_updates": 3,
            "updates": 6,
            "local_steps": 18,
            "idle_share": 0.5 if slow else 0.01,
            "sites": sites,
        }
        return DemoRun(name, summary, self.folder / name)


def test_a_demo_with_several_seeds_shows_every_run_in_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedcompass.deployment.operator.demo.Demo", CannedDemo)
    code, told = run("demo", "--compare", "fedavg", "--seed", "2", "--seeds", "3")
    assert code == 0
    assert told.count("runs/demo/seed-3/") == 2
    table = [line.split() for line in told.splitlines()[-6:]]
    assert table == [
        ["2", "fedcompass", "12.0", "1.00", "2.0%", "1%", "1.0%", "to", "4.0%"],
        ["2", "fedavg", "30.0", "2.50", "-", "50%", "1.0%", "to", "4.0%"],
        ["3", "fedcompass", "13.0", "1.00", "2.0%", "1%", "1.0%", "to", "4.0%"],
        ["3", "fedavg", "30.0", "2.31", "-", "50%", "1.0%", "to", "4.0%"],
        ["4", "fedcompass", "14.0", "1.00", "2.0%", "1%", "1.0%", "to", "4.0%"],
        ["4", "fedavg", "not", "reached", "-", "-", "50%", "1.0%", "to", "4.0%"],
    ]
