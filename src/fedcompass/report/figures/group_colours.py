"""Which colour each arrival group gets, so that groups that meet in a lane can be told apart."""

from math import inf

from fedcompass.report.figures.style import COLOURS, GREY, SKY_BLUE
from fedcompass.report.figures.timeline_data import Timeline
from fedcompass.vocabulary import GroupId, Seconds

__all__ = ["group_colours"]


def group_colours(timeline: Timeline) -> dict[GroupId | None, str]:
    """A colour for each group, in order of opening: the one that was last seen longest ago.

    Under None: rounds outside groups, grey beside groups, sky blue where there are none.
    """
    last_seen: dict[GroupId, Seconds] = {}
    for work in timeline.rounds:
        if work.group is not None:
            last_seen[work.group] = max(work.end, last_seen.get(work.group, -inf))
    busy_until = dict.fromkeys(COLOURS, -inf)
    colours: dict[GroupId | None, str] = {None: GREY if last_seen else SKY_BLUE}
    for group in sorted(last_seen):
        colours[group] = min(COLOURS, key=busy_until.__getitem__)
        busy_until[colours[group]] = last_seen[group]
    return colours
