"""`fedcompass advise`: which strategy to use for these clients, and why; nothing is trained."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli.options import for_each_client, parse_numbers, parse_samples
from fedcompass.cli.text import plain_table
from fedcompass.errors import SettingsError
from fedcompass.number_text import number_of
from fedcompass.setting_tables import flat

if TYPE_CHECKING:
    from fedcompass.advice.choice import Advice
    from fedcompass.advice.clients import Clients

__all__ = ["advise"]

_WIDTH = 96
_NAMED = 5  # runs in an error's line
_PIECES = ("calibrated", "since_last", "staleness_window")  # combine with absent = skip alone
_ROUNDS = 8  # of a client of mean pace, for a first try


def advise(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A run's folder (its journal has paces, overheads and samples), an experiment's "
            "TOML file, or a CSV file with client,seconds_per_step; else give --paces."
        ),
    ] = None,
    paces: Annotated[
        str | None, typer.Option(help="Each client's seconds per step: 0.1,0.2,…")
    ] = None,
    overhead: Annotated[
        str | None,
        typer.Option(help="Seconds of a task beside its steps: one number, or one per client."),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(help="Each client's samples: 500,1200,…; else all the same.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Q, and Q_max where a strategy chooses: the source's, or 200."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: clients, schedules, advice.")
    ] = False,
) -> None:
    """Say which strategy to use for given clients, and why, from their schedules alone."""
    from fedcompass.advice.choice import advise as choose

    clients = _clients(source, paces, overhead, samples, steps)
    advice = choose(clients)
    if source is not None and source.is_file() and not _is_csv(source):
        advice = _beside_pieces(source, advice)
    command = shlex.join(_command(source, clients, advice, has_overhead=overhead is not None))
    if as_json:
        print(json.dumps(_record(clients, advice, command)))
        return
    known = _what(clients)
    if source is not None and not _is_csv(source) and steps is None:
        known += f" as in {source} (--steps: another)"
    print(_in_words(known, clients, advice, f"{command}{_left_out(source, clients)}"))


def _clients(
    source: Path | None,
    paces: str | None,
    overhead: str | None,
    samples: str | None,
    steps: int | None,
) -> "Clients":
    from fedcompass.advice.clients import SAME_SAMPLES, Clients

    if (source is None) == (paces is None):
        raise SettingsError("give either a run's folder or a file, or --paces 0.1,0.2,…")
    if source is not None:
        found = _of_source(source)
    else:
        seconds = parse_numbers("--paces", paces or "")
        nothing = (0.0,) * len(seconds)
        alike = (1,) * len(seconds)
        found = Clients(paces=seconds, overhead=nothing, samples=alike, remark=SAME_SAMPLES)
    count = len(found.paces)
    return replace(
        found,
        overhead=found.overhead
        if overhead is None
        else for_each_client("overhead", overhead, count),
        samples=found.samples if samples is None else parse_samples(samples, count),
        steps=found.steps if steps is None else steps,
        remark="" if samples is not None and found.remark == SAME_SAMPLES else found.remark,
    ).checked()


def _of_source(source: Path) -> "Clients":
    from fedcompass.advice.clients import clients_in_csv, clients_in_experiment, clients_in_run
    from fedcompass.experiment import Experiment

    if not source.exists():
        raise SettingsError(
            f"{source} is not there; give a run's folder, an experiment's TOML file or a CSV file"
        )
    if source.is_dir():
        if not (source / "journal.jsonl").is_file():
            raise SettingsError(_no_run(source))
        return clients_in_run(source)
    if _is_csv(source):
        return clients_in_csv(source)
    return clients_in_experiment(Experiment.from_toml(source))


def _is_csv(source: Path) -> bool:
    return source.suffix.lower() == ".csv"


def _no_run(folder: Path) -> str:
    """That a folder is not a run's; the runs in it, if it is a comparison's or a sweep's."""
    told = f"{folder} is not a run's folder: it has no journal.jsonl"
    runs = sorted({str(path.parent) for path in folder.glob("**/journal.jsonl")})
    more = f", and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return f"{told}; give one of those in it: {', '.join(runs[:_NAMED])}{more}" if runs else told


def _command(
    source: Path | None, clients: "Clients", advice: "Advice", *, has_overhead: bool
) -> list[str]:
    """Runs the strategy on these clients: on an experiment's own data, else on the bundled."""
    if source is not None and source.is_file() and not _is_csv(source):
        return [*_on_experiment(source, advice), *(_latency(clients) if has_overhead else [])]
    command = ["fedcompass", "run", "--strategy", advice.strategy]
    command += ["--clients", str(len(clients.paces)), *_steps(advice.settings)]
    tasks = clients.task_seconds()
    horizon = float(f"{_ROUNDS * sum(tasks) / len(tasks):.3g}")
    command += ["--horizon", f"{horizon:.12g}"]
    command += ["--set", f"fleet.paces={_listed(clients.paces)}"]
    return command + (_latency(clients) if any(clients.overhead) else [])


def _steps(settings: dict[str, Any]) -> list[str]:
    """The options for what is not a default of the strategy."""
    words = []
    for key, value in settings.items():
        if key in ("steps", "min_steps", "max_steps"):
            words += [f"--{key.replace('_', '-')}", str(value)]
        elif key in ("absent", "staleness"):
            for name, choice in flat({key: value}).items():
                words += ["--set", f"strategy.{name}={choice}"]
    return words


def _latency(clients: "Clients") -> list[str]:
    one_way = [seconds / 2 for seconds in clients.overhead]
    latency = f"{one_way[0]:.6g}" if len(set(one_way)) == 1 else _listed(one_way)
    return ["--set", f"fleet.latency_seconds={latency}"]


def _left_out(source: Path | None, clients: "Clients") -> str:
    """A line about what the command does not say of the clients."""
    if len(set(clients.samples)) == 1 or (
        source is not None and not _is_csv(source) and source.is_file()
    ):
        return ""
    return "\n\nIt leaves out the clients' samples: `run` divides its own data among them."


def _on_experiment(file: Path, advice: "Advice") -> list[str]:
    """With `run`; with `compare`, which leaves out what a strategy lacks, where `run` refuses."""
    from fedcompass.cli.setting_options import experiment_from

    steps = _steps(advice.settings)
    try:
        experiment_from(file, None, {"strategy.name": advice.strategy})
    except SettingsError:
        chosen = ["--strategies", advice.strategy, "--seeds", "1", *steps]
        return ["fedcompass", "compare", str(file), *chosen]
    return ["fedcompass", "run", str(file), "--strategy", advice.strategy, *steps]


def _beside_pieces(file: Path, advice: "Advice") -> "Advice":
    """Leave absent clients to a piece in the file that makes up for them itself."""
    from fedcompass.experiment import read_experiment

    given = read_experiment(file).get("strategy", {})
    pieces = [piece for piece in _PIECES if given.get(piece)]
    if advice.settings.get("absent") != "catch-up" or not pieces:
        return advice
    reason = f"The file's {pieces[0]} makes up for absent clients, so absent stays skip."
    settings = {**advice.settings, "absent": "skip"}
    return advice._replace(settings=settings, reasons=[*advice.reasons, reason])


def _listed(numbers: "tuple[float, ...] | list[float]") -> str:
    return f"[{','.join(f'{number:.6g}' for number in numbers)}]"


def _record(clients: "Clients", advice: "Advice", command: str) -> dict[str, Any]:
    def values(fact: Any) -> dict[str, Any]:
        return {name: getattr(fact, name) for name in type(fact).__slots__}

    return {
        "clients": values(clients),
        "until": advice.until,
        "schedules": [values(one) for one in advice.schedules],
        "advice": {
            "kind": advice.kind,
            "strategy": advice.strategy,
            "settings": advice.settings,
            "reasons": advice.reasons,
            "source": advice.source,
            "command": command,
        },
    }


def _in_words(known: str, clients: "Clients", advice: "Advice", command: str) -> str:
    chosen = _inline({"name": advice.strategy, **advice.settings})
    return "\n".join(
        [
            known,
            *([clients.remark] if clients.remark else []),
            "",
            _table(advice),
            "",
            fill(
                f"Schedules of {advice.until:,.0f} s, nothing trained{_cut(clients, advice)}. "
                "waiting: share of client time; by plan: the part of it ahead of a group or beat, "
                "as a share of client time, too. updates: of the client with the most, of the one "
                f"with the fewest. {advice.strategy} has the settings below, the others those of "
                "the paper.",
                _WIDTH,
            ),
            "",
            f"Use {advice.strategy}:",
            "",
            f"  {command}",
            "",
            f"In a federation: strategy = {chosen}",
            "",
            "Why:",
            *(
                fill(f"- {why}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
                for why in advice.reasons
            ),
            "",
            f"Source: {advice.source}.",
        ]
    )


def _inline(value: Any) -> str:
    """A setting as TOML has it."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return f"{{ {', '.join(f'{key} = {_inline(own)}' for key, own in value.items())} }}"


def _cut(clients: "Clients", advice: "Advice") -> str:
    if advice.until >= max(clients.task_seconds()):
        return ""
    return "; no longer, since fast clients make so many tasks before the slowest has answered"


def _what(clients: "Clients") -> str:
    low, high = min(clients.paces), max(clients.paces)
    beside = max(clients.overhead)
    cost = f", task overhead up to {beside:.3g} s" if beside else ""
    return (
        f"{number_of(len(clients.paces), 'client')}, {low:.3g} to {high:.3g} s per step (slowest "
        f"{high / low:.1f}x the fastest){cost}, Q = {clients.steps}"
    )


def _table(advice: "Advice") -> str:
    header = ["strategy", "waiting", "by plan", "uploads", "merges", "staleness", "updates"]
    rows = [
        [
            one.strategy,
            f"{one.waiting:.0%}",
            f"{one.by_plan:.0%}",
            str(one.uploads),
            str(one.merges),
            f"{one.staleness:.1f}",
            f"{one.most_updates} : {one.fewest_updates}",
        ]
        for one in advice.schedules
    ]
    return plain_table(header, rows, left=(0,))
