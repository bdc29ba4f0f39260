"""A real site's process that masks its updates wrongly: the sums that it is in cannot be opened.

python -m tests.faults.masking_liar FOLDER
"""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.site import site_process
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import Child
from fedcompass.secure_aggregation.member_round import MemberRound


class MaskingLiar(RunningSite):
    """A site's process beside this one."""

    def __init__(self, site: SiteFolder) -> None:
        super().__init__(site)
        program = replace(site_process.site_program(site), module="tests.faults.masking_liar")
        self._child = Child(program, longest_pause=5.0)


def _falsely_masked(usual: Any) -> Any:
    return lambda *arguments: usual(*arguments)[::-1].copy()


if __name__ == "__main__":
    with patch.object(MemberRound, "_masked", _falsely_masked(MemberRound._masked)):
        site_process.main()
