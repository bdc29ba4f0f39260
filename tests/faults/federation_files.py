"""The files of a fault test's federation: its project, its sites, its run."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from tests.faults.apps import APP, Twin

from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.supervision import free_port


class FederationFiles:
    """Writes a project, and reads what becomes of it.

    Args:
        paces: seconds per step of each site, by name.
        liars: what is wrong with a site's answers (`lying_site.LIES`), by its name; of `ToySites`.
        address: where the server listens; a free port of the loopback unless given.
        app: the text of app.py.
        federation: settings of the run beside those of all fault tests.
    """

    def __init__(
        self,
        paces: Mapping[str, float],
        *,
        liars: Mapping[str, str] | None = None,
        address: str | None = None,
        app: str = APP,
        **federation: Any,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="fc-"))
        self.project = self.home / "f"
        self.run = self.project / "run"
        self.address = address or f"127.0.0.1:{free_port()}"
        self.liars = dict(liars or {})
        self.site_settings: dict[str, dict[str, Any]] = {
            name: {"number": number, "seconds_per_step": pace}
            for number, (name, pace) in enumerate(paces.items())
        }
        settings: dict[str, Any] = {"min_clients": len(paces), "gone_after": 10.0}
        settings |= {"task_timeout": 60.0, "ttl": 600.0, "max_updates": 100_000}
        self.settings = FederationSettings(**(settings | federation))
        init_project(self.project, self.address, list(paces))
        (self.project / "app.py").write_text(app, encoding="utf-8")
        self.write_settings()
        for name in paces:
            self._write_site(name)

    def write_settings(self) -> None:
        network = ServerProject(self.project).network.model_dump()
        record = {"server": network, "federation": self.settings.to_record()}
        (self.project / "deployment.toml").write_text(tomli_w.dumps(record), encoding="utf-8")

    def _write_site(self, name: str) -> None:
        folder = self.site_folder(name)
        shutil.copy(self.project / "app.py", folder / "app.py")
        site: dict[str, Any] = {"name": name, "server": self.address, "threads": 1}
        site["settings"] = self.site_settings[name]
        (folder / "site.toml").write_text(tomli_w.dumps(site), encoding="utf-8")

    def site_folder(self, name: str) -> Path:
        return self.project / "sites" / name

    def twin(self) -> Twin:
        """The same sites without faults."""
        return Twin(self.project / "app.py", self.settings.seed, self.site_settings)

    def audit(self, what: str | None = None, who: str | None = None) -> list[dict[str, Any]]:
        """Lines of the audit log, those that are whole."""
        lines = whole_lines(self.run / "audit.jsonl")
        return [
            line
            for line in lines
            if what in (None, line["what"]) and who in (None, line.get("who"))
        ]

    def accepted(self, who: str | None = None) -> int:
        return len(self.audit("accepted", who))

    @property
    def version(self) -> int:
        return len(self.audit("merged"))

    def training(self, site: str) -> bool:
        """Whether a site is in the midst of a task, by its worker's log."""
        log = self.site_folder(site) / "state" / "worker.log"
        lines = [line for line in text_of(log).splitlines() if "task " in line]
        return bool(lines) and " of run " in lines[-1]

    def story(self) -> str:
        """The end of the audit log, for a test that failed."""
        return "\n".join(json.dumps(line) for line in self.audit()[-15:])


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that grows; one that is being written is left out."""
    return [json.loads(line) for line in text_of(path).split("\n")[:-1]]


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
