"""Medical datasets as experiments: the paper's settings, and runs on real and generated data."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.models import build
from fedcompass.simulation.problems import build_problem, remarks_on
from fedcompass.simulation.run import simulate
from fedcompass.sweeps.sweep_file import Sweep
from fedcompass.training.local import LocalTrainer

RealData = Callable[[str], Path]


def experiment(name: str, strategy: str = "fedcompass", **settings: object) -> Experiment:
    return Experiment(data={"name": name}, strategy={"name": strategy}, **settings)


def test_fed_ixi_has_the_papers_settings() -> None:
    chosen = experiment("fed-ixi")
    assert (chosen.fleet.clients, chosen.fleet.mean_seconds_per_step) == (3, 0.8)
    assert (chosen.model, chosen.partition.kind) == ("unet3d", "center")
    local = chosen.local
    assert (local.optimizer, local.learning_rate, local.batch_size) == ("adamw", 0.001, 2)
    assert local.weight_decay == 0.01  # PyTorch's default, which FLamby leaves
    assert (chosen.target, chosen.evaluation.target_metric) == (0.98, "dice")
    assert chosen.strategy["min_steps"] == 20
    assert chosen.strategy["max_steps"] == 100
    assert experiment("fed-ixi", "fedavg").strategy["steps"] == 50
    assert experiment("fed-ixi", "fedbuff").strategy["buffer_size"] == 2
    momentum = experiment("fed-ixi", "fedcompass+m").chosen_strategy().aggregation
    assert (momentum.server.optimizer, momentum.server.beta) == ("momentum", 0.9)


def test_fed_isic2019_has_the_papers_settings() -> None:
    chosen = experiment("fed-isic2019")
    assert (chosen.fleet.clients, chosen.fleet.mean_seconds_per_step) == (6, 1.5)
    assert chosen.model == "efficientnet_b0"
    local = chosen.local
    assert (local.optimizer, local.learning_rate, local.batch_size) == ("adam", 0.0005, 64)
    assert (chosen.target, chosen.evaluation.target_metric) == (0.5, "balanced_accuracy")
    assert experiment("fed-isic2019", "fedbuff").strategy["buffer_size"] == 3
    staleness = chosen.chosen_strategy().aggregation.staleness
    assert (staleness.alpha, staleness.a) == (0.9, 0.5)
    for name in ("fedavgm", "fedcompass+m"):
        server = experiment("fed-isic2019", name).chosen_strategy().aggregation.server
        assert (server.optimizer, server.beta) == ("momentum", 0.5)
    plain = experiment("fed-isic2019", "fedavg").chosen_strategy().aggregation.server
    assert plain.optimizer == "plain"


def test_a_record_reads_back_as_the_same_experiment() -> None:
    chosen = experiment("fed-tcga-brca", loss="cox")
    assert Experiment(**chosen.to_record()).key() == chosen.key()
    assert "weights" not in chosen.to_record()


def test_an_unknown_loss_and_a_target_above_1_are_refused() -> None:
    with pytest.raises(SettingsError, match="'coks' is no loss"):
        experiment("fed-tcga-brca", loss="coks")
    with pytest.raises(SettingsError, match="at most 1 for concordance"):
        experiment("fed-tcga-brca", target=70)


def test_clients_are_the_centers_that_are_there(real_medical: RealData, tmp_path: Path) -> None:
    root = real_medical("fed_heart_disease")
    (tmp_path / "fed_heart_disease").mkdir()
    for center in ("cleveland", "va"):
        name = f"fed_heart_disease/processed.{center}.data"
        (tmp_path / name).write_bytes((root / name).read_bytes())
    chosen = Experiment(data={"name": "fed-heart-disease", "root": tmp_path})
    assert chosen.fleet.clients == 2
    problem = build_problem(chosen)
    assert [len(samples) for samples in problem.clients] == [199, 85]
    assert problem.client_tests is not None
    assert [len(samples) for samples in problem.client_tests] == [104, 45]
    given = chosen.with_settings({"fleet": {"clients": 3}})
    with pytest.raises(SettingsError, match="allowed with kind 'center': 2"):
        build_problem(given)


@pytest.mark.parametrize(
    ("name", "folder", "metric"),
    [
        ("fed-heart-disease", "fed_heart_disease", "binary_accuracy"),
        ("fed-tcga-brca", "fed_tcga_brca", "concordance"),
    ],
)
def test_a_run_on_a_real_table_learns_and_stacks(
    real_medical: RealData, name: str, folder: str, metric: str
) -> None:
    chosen = Experiment(
        data={"name": name, "root": real_medical(folder)},
        horizon=10.0,
        evaluation={"every_updates": 20, "per_client": True},
    )
    serial = simulate(chosen)
    assert serial.top() > serial.curve[0][metric]
    assert serial.top() > 0.55
    assert len(serial.curve[-1]["clients"]) == chosen.fleet.clients
    stacked = simulate(chosen, executor="stacked")
    assert stacked.curve[-1][metric] == pytest.approx(serial.curve[-1][metric], abs=0.01)


@pytest.fixture
def few_images(tmp_path: Path) -> Path:
    """Twelve small images of two centers."""
    folder = tmp_path / "fed_isic2019"
    folder.mkdir()
    rng, lines = np.random.default_rng(0), ["image,target,center,fold"]
    for number in range(12):
        fold = "test" if number >= 8 else "train"
        lines.append(f"i{number},{number % 8},{1 + number % 2},{fold}")
        pixels = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"i{number}.jpg")
    (folder / "split.csv").write_text("\n".join(lines))
    return tmp_path


def images_experiment(root: Path, **settings: object) -> Experiment:
    return Experiment(
        data={"name": "fed-isic2019", "root": root},
        local={"batch_size": 2},
        strategy={"name": "fedcompass", "min_steps": 1, "max_steps": 2},
        horizon=4.0,
        max_updates=2,
        **settings,
    )


def test_images_train_with_augmentation_the_same_bits_twice(few_images: Path) -> None:
    chosen = images_experiment(few_images, model="mnist_cnn")
    problem = build_problem(chosen)
    trainer = LocalTrainer(problem, chosen.local, 0)
    start = trainer.initial_state()
    first = trainer.train(start, client=1, local_round=0, steps=2, payload="delta").trainable
    again = trainer.train(start, client=1, local_round=0, steps=2, payload="delta").trainable
    assert torch.equal(first.clone(), again)
    processes = simulate(chosen, executor="processes", workers=1)
    assert processes.curve == simulate(chosen).curve


def test_random_weights_are_said_and_given_ones_are_used(few_images: Path, tmp_path: Path) -> None:
    chosen = images_experiment(few_images)
    assert any("no pretrained weights were given" in remark for remark in remarks_on(chosen))
    saved = build("efficientnet_b0", input_shape=(3, 43, 43), classes=1000)
    save_file(saved.state_dict(), tmp_path / "imagenet.safetensors")
    given = images_experiment(few_images, weights=tmp_path / "imagenet.safetensors")
    assert not any("random" in remark for remark in remarks_on(given))
    network = build_problem(given).model()
    stem = "_conv_stem.weight"
    assert torch.equal(network.state_dict()[stem], saved.state_dict()[stem])
    assert network.state_dict()["_fc.weight"].shape == (8, 1280)


def test_the_example_sweep_is_every_strategy_on_both_tables_with_ten_seeds() -> None:
    sweep = Sweep.from_toml(Path(__file__).parents[3] / "examples" / "medical_sweep.toml")
    plan = sweep.plan()
    assert len(plan) == 2 * 3 * 8 * 10
    assert {planned.experiment.partition.kind for planned in plan} == {"center"}
