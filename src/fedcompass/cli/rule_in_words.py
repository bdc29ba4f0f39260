"""How a strategy turns updates into a model: its formula, and the same in words."""

import textwrap
from typing import TYPE_CHECKING

from fedcompass.settings.aggregation import TierSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedcompass.settings.aggregation import (
        AggregationSettings,
        ServerSettings,
        StalenessSettings,
    )
    from fedcompass.strategies import Strategy

__all__ = ["rule_in_words"]

_WIDTH = 78

_WHEN = {
    "synchronous": "everybody has answered",
    "immediate": "an answer arrives",
    "buffered": "K answers (buffer_size) have arrived",
    "tiered": "everybody has answered once, unless profiling is tasks; then a tier has",
    "compass": "a group has answered or its time is up; a client's first answer counts at once",
    "metronome": "everybody due at a beat has answered, or its time is up",
}
_WEIGHT = {"share": "p_i", "staleness": "st(u)", "staleness-share": "st(u) p_i"}
_WEIGHTED = {
    "share": "weighted by its sender's share of the samples",
    "staleness": "weighted the less the staler it is",
    "staleness-share": "weighted by its sender's share of the samples and its freshness",
}
_DIVISOR = {"none": "", "mean-share": " / Σ p_i", "mean-count": " / K"}
_DIVIDED = {
    "none": ", summed up",
    "mean-share": ", averaged over those who answered",
    "mean-count": ", summed up and divided by their number",
}
_ADAPTIVE = {"adam": "Adam", "yogi": "Yogi", "adagrad": "Adagrad"}
_MOVES = {"plain": "the model moves by", "momentum": "the model moves with momentum by"} | {
    optimizer: f"the server's {name} takes a step along" for optimizer, name in _ADAPTIVE.items()
}

_TIERS = {
    "mirrored": (
        "Σ_m (T_{M+1-m} / T) w_m",
        "the mean of the tiers' models w_m, each the mean of its clients' models by samples; tier "
        "m (1 the fastest of M) weighs T_{M+1-m}, the rounds of the tier at the mirrored rank, so "
        "that slow tiers count more",
    ),
    "samples": (
        "Σ_m p_m w_m / Σ_m p_m",
        "the mean of the tiers' models w_m by samples, each the mean of its clients' models, too",
    ),
}


def rule_in_words(chosen: "Strategy") -> str:
    """When the model changes and by what, in a few indented lines."""
    rule = chosen.aggregation
    scheduler = getattr(chosen.kind.build, "__name__", chosen.scheduler)
    lines = [_line("when", _WHEN.get(chosen.scheduler, f"the scheduler {scheduler!r} says so"))]
    if chosen.own_rule is not None:
        lines.append(_line("rule", f"{chosen.own_rule}, its own; what it leaves to WeightedSum:"))
    formula, words = _tiers(rule) if isinstance(rule, TierSettings) else _sum(chosen)
    lines += [_line("formula", formula), _line("in words", words)]
    if chosen.weighs_staleness:
        lines.append(_line("st(u)", _staleness(rule.staleness)))
    lines += [_line(symbol, meaning) for symbol, meaning in _pieces(rule)]
    return "\n".join(lines)


def _tiers(rule: TierSettings) -> tuple[str, str]:
    server, (mean, in_words) = rule.server, _TIERS[rule.tier_weights]
    if server.optimizer == "plain" and server.learning_rate == 1:
        return f"w = {mean}", f"the model becomes {in_words}"
    words = f"{_MOVES[server.optimizer]} the way to {in_words}"
    return _formula(server, f"(w - {mean})"), words


def _sum(chosen: "Strategy") -> tuple[str, str]:
    rule = chosen.aggregation
    alone = chosen.scheduler == "immediate"  # every update is merged by itself
    words = f"{_MOVES[rule.server.optimizer]} {_step_in_words(rule, alone)}"
    return _formula(rule.server, _step(rule, alone)), words


def _pieces(rule: "AggregationSettings") -> "Iterator[tuple[str, str]]":
    """The symbols that only pieces have."""
    if rule.calibrated:
        yield "h_i, h", "what client i sent last, and the sum of these by p_i"
    if rule.since_last:
        yield "y_i", "the model that client i sent last"
    if rule.staleness_window is not None:
        yield "ū_i", f"the mean of u + 1 over client i's last {rule.staleness_window} updates"
    if rule.server.delay_limit is not None:
        yield (
            "η",
            f"1, or 1 / max u of the updates where that u is above {rule.server.delay_limit}",
        )


def _line(name: str, text: str) -> str:
    return textwrap.fill(f"  {name:<9} {text}", _WIDTH, subsequent_indent=" " * 12)


def _step(rule: "AggregationSettings", alone: bool) -> str:
    """What the server makes of the updates, and the model moves against."""
    stale = " ū_i" if rule.staleness_window is not None else ""
    weight = f"{'' if alone else 'Σ '}{_WEIGHT[rule.weighting]}{stale}"
    divisor = _DIVISOR[rule.scale]
    change = "(Δ_i - h_i + h)" if rule.calibrated else "(y_i - w_i)" if rule.since_last else "Δ_i"
    if rule.payload == "model":
        return f"{weight} (w - w_i){divisor}"
    if rule.normalized:
        per_step = "(Δ_i / Q_i - h_i + h)" if rule.calibrated else "Δ_i / Q_i"
        return f"(Σ p_i Q_i / Σ p_i) {weight} {per_step}{divisor}"
    return f"{weight} {change}{divisor}"


def _step_in_words(rule: "AggregationSettings", alone: bool) -> str:
    clients, each = ("the client's", "") if alone else ("the clients'", "each ")
    if rule.payload == "model":
        subject = f"the way to {clients} model" + ("" if alone else "s")
    else:
        subject = f"{clients} change" + ("" if alone else "s")
    if rule.normalized:
        subject += " per local step"
    divided = "" if alone else _DIVIDED[rule.scale]
    text = f"{subject}, {each}{_WEIGHTED[rule.weighting]}{divided}"
    return f"{text}, times the mean number of steps" if rule.normalized else text


def _formula(server: "ServerSettings", step: str) -> str:
    rate = "" if server.learning_rate == 1 else f"{server.learning_rate:g} "
    rate += "" if server.delay_limit is None else "η "
    match server.optimizer:
        case "plain":
            return f"w -= {rate}{step}"
        case "momentum":
            return f"v = {server.beta:g} v + {step}; w -= {rate}v"
        case _:
            return f"w -= {rate}{_ADAPTIVE[server.optimizer]}({step})"


def _staleness(settings: "StalenessSettings") -> str:
    alpha, a, b = settings.alpha, settings.a, settings.b
    factor = "" if alpha == 1 else f"{alpha:g} "
    match settings.kind:
        case "polynomial":
            return f"{factor}(u + 1)^-{a:g}"
        case "growing":
            return f"{factor}(u + 1)^{a:g}: a stale update weighs more"
        case "hinge":
            return f"{alpha:g} up to u = {b:g}, then {alpha:g} / ({a:g} (u - {b:g}) + 1)"
        case "constant":
            return f"{alpha:g}"
