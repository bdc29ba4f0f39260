"""A real site's process whose worker needs no torch: it is up within a second after a kill.

python -m tests.faults.toy_site FOLDER
"""

from dataclasses import replace
from unittest.mock import patch

from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.site import site_process
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import worker_program as usual_program
from fedcompass.deployment.supervision import Child, Program


class ToySite(RunningSite):
    """A site's process beside this one."""

    def __init__(self, site: SiteFolder) -> None:
        super().__init__(site)
        program = replace(site_process.site_program(site), module="tests.faults.toy_site")
        self._child = Child(program, longest_pause=5.0)


def toy_program(site: SiteFolder) -> Program:
    return replace(usual_program(site), module="tests.faults.toy_worker")


if __name__ == "__main__":
    with patch.object(site_process, "worker_program", toy_program):
        site_process.main()
