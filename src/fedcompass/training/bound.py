"""A module whose tensors lie in flat vectors, so that loading a model is three copies."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState, Layout, frozen_of
from fedcompass.errors import SettingsError
from fedcompass.training.problem import Problem
from fedcompass.training.streams import seeded, stream_key

__all__ = ["BoundModel", "build_module", "frozen_by_seed"]

_ALIGNED = 128  # bytes


def build_module(problem: Problem, seed: int) -> nn.Module:
    """The problem's model with initial weights that depend only on the seed."""
    with seeded(stream_key(seed, "model")):
        return problem.model()


def frozen_by_seed(build: Callable[[int], nn.Module]) -> str | None:
    """The first frozen parameter whose values depend on the seed; None if there is none."""
    first = frozen_of(build(0))
    if not first:
        return None
    other = frozen_of(build(1))
    return next((name for name in first if not torch.equal(first[name], other[name])), None)


class BoundModel:
    """A module on a device with its saved tensors as views into `state`'s flat vectors."""

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        self.layout = Layout.of(self.module)
        self.state = self.layout.state_of(self.module, device)
        self._unsaved = _unsaved_buffers(self.module)
        self._places = _bind(self.module, self.layout, self.state)
        self._apart = [place for place in self._places if not place.is_view]
        self.load(self.state)

    @property
    def has_frozen(self) -> bool:
        """Whether parameters do not train; these are as they were made, maybe from a seed."""
        return bool(frozen_of(self.module))

    @property
    def replaces_buffers(self) -> bool:
        """Whether `load` puts new tensors into the module, so that no graph can refer to them."""
        return bool(self._unsaved)

    def trained(self) -> list[nn.Parameter]:
        """The parameters that training changes.

        Raises:
            SettingsError: there is none.
        """
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if not trained:
            raise SettingsError("the model has no parameter that trains; set requires_grad on some")
        return trained

    @torch.no_grad()
    def load(self, state: FlatState) -> None:
        """Take over a model's values; what is not saved with a model starts as it was built."""
        self.state.copy_(state)
        own = [place for place in self._apart if not place.alias]
        if own:
            torch._foreach_copy_([place.tensor for place in own], [place.view for place in own])
        for place in self._places:
            place.restore()
        for owner, name, initial in self._unsaved:
            owner._buffers[name] = initial.clone()

    @torch.no_grad()
    def collect(self) -> FlatState:
        """The module's present values: `state`, after fetching what does not lie in it."""
        for place in self._places:
            place.fetch()
        if self._apart:
            torch._foreach_copy_([p.view for p in self._apart], [p.tensor for p in self._apart])
        return self.state


@dataclass(slots=True)
class _BoundTensor:
    """One saved tensor of a module, and where its values lie in the flat vectors.

    owner, name: the submodule that holds it, and under which name.
    view: its slice of the flat vectors.
    tensor: what the module uses; the view, or a tensor apart where dtypes differ, names alias or a
        GPU would read the view slowly or not at all.
    alias: a further name of a tensor that has its place already (tied weights).
    """

    owner: nn.Module
    name: str
    view: Tensor
    tensor: Tensor
    alias: bool
    is_view: bool

    def restore(self) -> None:
        if self.name in self.owner._buffers:
            self.owner._buffers[self.name] = self.tensor

    def fetch(self) -> None:
        # A module may assign a new tensor to its buffer instead of writing into the old one.
        present = self.owner._buffers.get(self.name)
        if present is not None and present is not self.tensor:
            self.tensor.copy_(present)
            self.owner._buffers[self.name] = self.tensor


@torch.no_grad()
def _bind(module: nn.Module, layout: Layout, state: FlatState) -> list[_BoundTensor]:
    held = module.state_dict(keep_vars=True)
    used: dict[int, Tensor] = {}  # the module's own tensor by id -> what it uses from now on
    places = []
    for spec, view in layout.views(state):
        tensor = held[spec.name]
        path, _, name = spec.name.rpartition(".")
        owner = module.get_submodule(path)
        alias = id(tensor) in used
        is_view = not alias and tensor.dtype == view.dtype and _is_aligned(view)
        if is_view and isinstance(tensor, nn.Parameter):
            tensor.data = view
        used.setdefault(id(tensor), view if is_view and name in owner._buffers else tensor)
        places.append(_BoundTensor(owner, name, view, used[id(tensor)], alias, is_view))
    return places


def _is_aligned(view: Tensor) -> bool:
    """Whether a GPU's kernels can read it: some assume that a weight begins where memory does."""
    return not view.is_cuda or view.data_ptr() % _ALIGNED == 0


def _unsaved_buffers(module: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """Buffers that are not part of the saved state; one task must not see another's."""
    return [
        (owner, name, buffer.clone())
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None and name in owner._non_persistent_buffers_set
    ]
