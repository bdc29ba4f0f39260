"""A site's privacy budget: [settings.privacy] in its site.toml, and an account beside its data."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.site.batches import collated
from fedcompass.errors import DataError, SettingsError
from fedcompass.privacy.account import plans_of
from fedcompass.privacy.account_file import AccountFile
from fedcompass.settings.privacy import PrivacySettings
from fedcompass.training.local import Step
from fedcompass.training.problem import Samples
from fedcompass.training.streams import RowStream
from fedcompass.vocabulary import Steps

if TYPE_CHECKING:
    from fedcompass.privacy.secret_draws import SecretDraws

__all__ = ["SiteBudget", "SitePrivacySettings", "budget_of"]

_USUAL_ACCOUNT = "privacy-account.json"


class SitePrivacySettings(PrivacySettings):
    """What a site may spend on its samples, and where it keeps the account."""

    account: Path | None = Field(
        default=None, description="file of what is spent; default: privacy-account.json in `data`"
    )

    def place(self, site: Site) -> Path:
        """The account's file."""
        if self.account is not None and self.account.is_absolute():
            return self.account
        if site.data is None:
            raise SettingsError(
                f"site {site.name} has a privacy budget but no data folder to keep the account in; "
                "set privacy.account to a file, by its whole path"
            )
        return site.data / (self.account or _USUAL_ACCOUNT)


def budget_of(site: Site, trainer: Trainer, module: nn.Module) -> "SiteBudget | None":
    """The budget that a site's settings give it; None: they give none, and it trains plainly.

    Raises:
        SettingsError: the settings are wrong, or model, loss or trainer cannot be private.
        RunFolderError: the account cannot be read, or trusted.
    """
    given = site.settings.get("privacy")
    if given is None:
        return None
    if not isinstance(given, dict) or "epsilon" not in given:
        raise SettingsError(f"privacy is {given!r}; allowed: a table with epsilon at least")
    settings = SitePrivacySettings(**given)
    settings.check_clients(1)
    if type(trainer).train_step is not Trainer.train_step:
        raise SettingsError(
            f"{type(trainer).__name__} has a train_step of its own, and site {site.name} a privacy "
            "budget: nobody knows that such a step is private; use Trainer's"
        )
    if trainer.sampling is not None:
        raise SettingsError(
            f"sampling is {trainer.sampling!r}, and site {site.name} has a privacy budget, under "
            "which every sample is in a batch by chance (docs/privacy.md); leave sampling out"
        )
    return SiteBudget(settings, site, trainer, module)


class SiteBudget:
    """Charges a site's tasks to its account and makes their steps private."""

    def __init__(
        self, settings: SitePrivacySettings, site: Site, trainer: Trainer, module: nn.Module
    ) -> None:
        from fedcompass.training.private_steps import check_loss, made_private

        self._trainer, self._device = trainer, torch.device(site.device)
        self._batch = _batch_maker(trainer, self._device)
        self._samples = len(trainer.data)  # type: ignore[arg-type]
        [plan] = plans_of(settings, trainer.batch_size, [self._samples])
        inputs, targets = self._batch(torch.arange(min(64, self._samples)))
        check_loss(module, trainer.loss, trainer.prepared(inputs), targets)
        self._hooked = made_private(module)
        copy = None if site.state is None else site.state / _USUAL_ACCOUNT
        self.account = AccountFile(settings.place(site), plan, copy)
        self._draws: SecretDraws | None = None

    def charge(self, steps: Steps) -> Steps:
        """Write down a task's steps, as many as can be afforded, before any is taken.

        Raises:
            BudgetSpent: none can.
        """
        from fedcompass.privacy.secret_draws import SecretDraws

        charged = self.account.charge(steps)
        self._draws = SecretDraws.fresh()  # a task that is asked for again is another one
        return charged

    def draw(self, _stream: RowStream, steps: Steps) -> Iterator[Any]:
        """Poisson batches that nobody can guess."""
        assert self._draws is not None  # since `charge`
        for _ in range(steps):
            yield self._batch(self._draws.rows(self._samples, self.account.plan.sample_rate))

    def begin(self, module: nn.Module, trained: list[nn.Parameter]) -> Step:
        """What takes one step of the charged task."""
        from fedcompass.training.private_steps import PrivateOptimizer

        assert self._draws is not None  # since `charge`
        optimizer = PrivateOptimizer(
            self._trainer.optimizer(trained), self.account.plan, self._draws
        )

        def step(batch: Any, augmenting: torch.Generator) -> None:
            def backward() -> None:
                loss = self._trainer.loss_on(module, batch, augmenting)
                loss.backward()  # type: ignore[no-untyped-call]

            optimizer.step_on(len(batch[0]), backward)

        return step

    def settle(self, charged: Steps, done: Steps, start: FlatState, end: FlatState) -> None:
        """The task is over: give back what was not taken, and see that nothing leaks.

        Raises:
            TaskFailed: training changed buffers, which have no noise.
        """
        from fedcompass.training.private_steps import check_buffers

        self._draws = None
        check_buffers(start, end)
        self.account.settle(charged, done)


def _batch_maker(trainer: Trainer, device: torch.device) -> Any:
    """Rows -> their batch on the device; an empty one has no samples, but is a batch.

    Raises:
        DataError: the data has an order of its own, so that nobody can draw from it.
    """
    match trainer.data:
        case Samples() as samples:
            here = samples.moved(lambda tensor: tensor.to(device))
            return lambda rows: here.batch(rows.to(device))
        case DataLoader() | IterableDataset() as stream:
            raise DataError(
                f"data is a {type(stream).__name__}, and a private step draws its samples itself; "
                "allowed: fedcompass.Samples or a map-style Dataset"
            )
        case dataset:
            return partial(_batch, dataset, device)


def _batch(dataset: Any, device: torch.device, rows: Tensor) -> Any:
    if len(rows) == 0:
        return torch.empty(0, device=device), torch.empty(0, device=device)
    return collated(dataset, rows, device)
