"""One line for each strategy of ours; read without the settings, which take long to load."""

__all__ = ["SUMMARIES"]

SUMMARIES = {
    "fedavg": "rounds: everybody trains Q steps, the server waits for all and averages by samples",
    "fedavgm": "fedavg, the average going through server momentum",
    "fedadam": "fedavg with Adam on the server",
    "fedyogi": "fedavg with Yogi on the server",
    "fedadagrad": "fedavg with Adagrad on the server",
    "fedasync": "every answer is mixed into the model at once, the less the staler it is",
    "fedbuff": "every K answers make one update, whoever sent them; nobody waits",
    "fedat": (
        "clients of similar pace form tiers; each runs fedavg by itself, and rare tiers count more"
    ),
    "fedcompass": (
        "Compass gives each client as many steps as let its group answer together; groups merge"
    ),
    "fedcompass+m": "fedcompass, the groups' merges going through server momentum",
    "fedcompass+n": (
        "fedcompass with normalized averaging: an update counts per step, not by its steps"
    ),
    "metronome": (
        "everybody answers on a beat, with as many steps as fit; clients that are too fast wait"
    ),
    "metronome+n": (
        "metronome with normalized averaging: an update counts per step, not by its steps"
    ),
}
