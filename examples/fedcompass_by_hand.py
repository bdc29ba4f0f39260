"""FedCompass by hand: the paper's Algorithms 1 to 3, line by line, over a heap and plain dicts.

Li et al., ICLR 2024, https://arxiv.org/abs/2309.14675. `1.16` is line 16 of Algorithm 1; 2 and 3
are in the appendix. Nothing is trained: this computes who trains how many steps from when to when,
and how stale each merged update is. So a buffer is a list of whose updates it holds. Nothing is
imported from the library; `tests/scheduling/test_by_hand.py` compares the two.

Times are fractions, so that floor() and "at the same time" are what they are on paper. The library
has floats: there a millionth of a step short is the whole step, and within 1e-6 s is the same time.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from heapq import heappop, heappush
from math import floor
from typing import Any

ARRIVAL, TIMER = 0, 1  # in this order at one instant: who arrives at T_max is not late (1.15)


class FedCompass:
    def __init__(
        self,
        clients: Iterable[int],
        time_per_step: Callable[[int, int], Fraction],  # a client's, in its local round 0, 1, …
        min_steps: int,  # Q_min
        max_steps: int,  # Q_max
        latest: Fraction,  # λ
    ) -> None:
        self.min_steps, self.max_steps, self.latest = min_steps, max_steps, latest
        self.time_per_step = time_per_step
        self.now = Fraction(0)  # T_now
        self.events: list[tuple[Fraction, int, int, int]] = []
        self.rows: list[dict[str, Any]] = []  # what happened
        self.tasks = self.opened = 0  # how many there were
        start = {"round": 0, "group": None, "steps": min_steps, "version": 0}
        self.info: dict[int, dict[str, Any]] = {i: {**start} for i in clients}  # 1.9: 𝒞
        self.groups: dict[int, dict[str, Any]] = {}  # 𝒢
        self.version = 0  # τ_g
        self.general: list[dict[str, int]] = []  # Δ̄
        for i in self.info:  # 1.8
            self.train(i)

    def train(self, i: int) -> None:  # FedCompass-Client, 1.1 to 1.5: here it takes time, no more
        client = self.info[i]
        end = self.now + client["steps"] * self.time_per_step(i, client["round"])
        self.tasks += 1  # of those who arrive at one instant, who was sent off first comes first
        heappush(self.events, (end, ARRIVAL, self.tasks, i))
        client.update(start=self.now, round=client["round"] + 1)  # T_start: 2.12, 2.34
        self.rows.append({"at": self.now, "end": end, "client": i, **client})

    def run(self, until: Fraction) -> list[dict[str, Any]]:
        """Every task given and every merge up to a time."""
        while self.events[0][0] <= until:  # 1.10; the paper counts N rounds
            self.now, kind, _, number = heappop(self.events)
            if kind == ARRIVAL:
                self.receive(number)  # 1.11
            elif number in self.groups:  # 3.2
                self.group_aggregate(self.groups[number])
        return self.rows

    def receive(self, i: int) -> None:
        client, g = self.info[i], self.info[i]["group"]
        client["pace"] = (self.now - client["start"]) / client["steps"]  # 1.12: S
        # What is kept of st(τ_g - 𝒞[i].τ) * p_i * Δ_i for 1.16, 1.21 and 1.25: the staleness now.
        stale = self.version - client["version"]
        update = {"client": i, "version": client["version"], "staleness": stale}
        if g is not None:  # 1.13
            group = self.groups[g]
            group["awaited"].remove(i)  # 1.14
            group["arrived"].append(i)
            if self.now > group["deadline"]:  # 1.15
                self.general.append(update)  # 1.16
                client["version"] = self.version
                self.assign_group(i)  # 1.17
                self.train(i)  # 1.18
                if not group["awaited"]:
                    del self.groups[g]  # 1.19
            else:  # 1.20
                group["buffer"].append(update)  # 1.21
                if not group["awaited"]:  # 1.22
                    # 1.23 deletes the group afterwards. By then a client alone that has doubled its
                    # speed would be in it again, and lost with it. So first, as in the library.
                    self.group_aggregate(self.groups.pop(g))
        else:  # 1.24
            self.merge([update], None)  # 1.25
            client["version"] = self.version
            self.assign_group(i)  # 1.26
            self.train(i)  # 1.27

    def merge(self, updates: list[dict[str, int]], g: int | None) -> None:  # w := w - …
        self.version += 1
        merged = {"at": self.now, "merged": updates, "group": g, "version": self.version}
        self.rows.append(merged)

    def assign_group(self, i: int) -> None:  # 2.1
        if not self.join_group(i):  # 2.2
            self.create_group(i)  # 2.3

    def join_group(self, i: int) -> bool:  # 2.5
        chosen, steps = -1, -1  # 2.6: G_assign, Q_assign
        for g, group in self.groups.items():  # 2.7
            fitting = floor((group["expected"] - self.now) / self.info[i]["pace"])  # 2.8: q
            if self.min_steps <= fitting <= self.max_steps and fitting >= steps:  # 2.9
                chosen, steps = g, fitting  # 2.10
        if chosen != -1:  # 2.11
            self.info[i].update(group=chosen, steps=steps)  # 2.12
            self.groups[chosen]["awaited"].append(i)  # 2.13, where the paper has g for G_assign
        return chosen != -1  # 2.14, 2.16

    def create_group(self, i: int) -> None:  # 2.18
        pace, steps = self.info[i]["pace"], -1  # 2.19: Q_assign
        for group in self.groups.values():  # 2.20
            if self.now < group["expected"]:  # 2.21
                together = group["awaited"] + group["arrived"]  # the paper leaves open which
                fastest = min(self.info[j]["pace"] for j in together)  # 2.22
                back = group["expected"] + fastest * self.max_steps  # 2.23: T_exp
                steps = max(steps, floor((back - self.now) / pace))  # 2.24
        if 0 <= steps < self.min_steps:  # 2.25
            steps = self.min_steps  # 2.26
        elif steps < 0 or steps > self.max_steps:  # 2.28; the prose passes over such a group
            steps = self.max_steps  # 2.29
        self.opened += 1
        g = self.opened  # 2.30: G_new
        self.groups[g] = {
            **{"id": g, "awaited": [i], "arrived": []},  # 2.31: CL, ACL
            "buffer": [],  # Δ̄ᵍ
            "expected": self.now + steps * pace,  # 2.32: T_a
            "deadline": self.now + steps * pace * self.latest,  # 2.33: T_max
        }
        self.info[i].update(group=g, steps=steps)  # 2.34
        heappush(self.events, (self.groups[g]["deadline"], TIMER, g, g))  # 2.35

    def group_aggregate(self, group: dict[str, Any]) -> None:  # 3.1
        # By the letter τ_g rises even if nobody has arrived and no late update waits; the library's
        # version counts changes of the model and stays then.
        self.merge(group["buffer"] + self.general, group["id"])  # 3.3
        self.general = []
        for i in sorted(group["arrived"], key=lambda i: self.info[i]["pace"]):  # 3.4, 3.5
            self.info[i]["version"] = self.version  # 3.6
            self.assign_group(i)  # 3.7
            self.train(i)  # 3.8


if __name__ == "__main__":  # the paper's overview figure; all its times are whole minutes
    minutes_per_step = {1: 0.1, 2: 0.2, 3: 0.25, 4: 0.4, 5: 0.5}
    paces = {client: Fraction(str(pace)) for client, pace in minutes_per_step.items()}
    figure = FedCompass(paces, lambda client, _: paces[client], 20, 100, Fraction(6, 5))
    for row in figure.run(until=Fraction(22)):
        if "merged" in row:
            stale = ", ".join(f"{one['client']} ({one['staleness']})" for one in row["merged"])
            print(
                f"{int(row['at']):2}:00        version {row['version']}: clients (staleness)", stale
            )
        else:
            where = f"group {row['group']}" if row["group"] else "warm-up"
            print(f"{int(row['at']):2}:00-{int(row['end']):2}:00  client {row['client']}:", end=" ")
            print(f"{row['steps']:3} steps, {where}")
