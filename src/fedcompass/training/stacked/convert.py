"""Turns a plain module made of known layers into its stacked form.

The module's forward is traced symbolically, so nested modules, residual sums and functional calls
are fine as long as every piece is known and works on each sample by itself.
"""

import operator
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from fedcompass.training.stacked.forward import CannotStack, Forward
from fedcompass.training.stacked.layers import BatchNorm, Conv2d, Linear, Stack

__all__ = ["convert"]

_SAMPLE_BY_SAMPLE = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)

_FUNCTIONS = {
    operator.add,
    operator.iadd,
    operator.sub,
    operator.mul,
    torch.add,
    torch.mul,
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    functional.relu,
    functional.gelu,
    functional.max_pool2d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool2d,
}

Layer = Callable[..., Tensor]
"""(stack, *values) -> value"""


@dataclass(frozen=True, slots=True)
class _Value:
    """Stands for the result of an earlier operation."""

    number: int


@dataclass(frozen=True, slots=True)
class _Operation:
    layer: Layer
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def convert(module: nn.Module) -> Forward:
    """The stacked form of a module.

    Raises:
        CannotStack: naming the first layer or function that is not known.
    """
    if any(m._forward_hooks or m._forward_pre_hooks for m in module.modules()):
        raise CannotStack("it has forward hooks")
    try:
        graph = fx.symbolic_trace(deepcopy(module)).graph  # a copy: tracing runs its forward
    except Exception as error:
        raise CannotStack(f"its forward cannot be traced ({type(error).__name__})") from error
    _pool_before_relu(module, graph)
    operations, output = _operations(module, graph)
    _check_all_known(module, operations)

    def forward(
        tensors: dict[str, Tensor], inputs: Tensor, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        stack = Stack(tensors, len(inputs), training)
        values = [inputs.flatten(0, 1)]
        for operation in operations:
            arguments = [
                values[a.number] if isinstance(a, _Value) else a for a in operation.arguments
            ]
            values.append(operation.layer(stack, *arguments, **operation.options))
        return values[output.number], stack.changed

    return forward


def _pool_before_relu(module: nn.Module, graph: fx.Graph) -> None:
    """Exchange a ReLU and the max pooling after it: the same numbers from a quarter of the work."""
    kinds = {
        node: type(module.get_submodule(str(node.target)))
        for node in graph.nodes
        if node.op == "call_module"
    }
    for pool, kind in kinds.items():
        relu = pool.args[0]
        if kind is nn.MaxPool2d and kinds.get(relu) is nn.ReLU and len(relu.users) == 1:
            pool.target, relu.target = relu.target, pool.target


def _operations(module: nn.Module, graph: fx.Graph) -> tuple[list[_Operation], _Value]:
    numbers: dict[fx.Node, _Value] = {}
    operations: list[_Operation] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            if numbers:
                raise CannotStack("its forward takes more than one argument")
            numbers[node] = _Value(0)
        elif node.op == "output":
            return operations, _output(node, numbers)
        else:
            arguments = tuple(numbers[a] if isinstance(a, fx.Node) else a for a in node.args)
            operations.append(_Operation(_layer(module, node), arguments, dict(node.kwargs)))
            numbers[node] = _Value(len(operations))
    raise CannotStack("its forward returns nothing")


def _check_all_known(module: nn.Module, operations: list[_Operation]) -> None:
    """Refuse state that would change unseen: of unknown layers, or twice in one pass."""
    layers = [operation.layer for operation in operations]
    norms = [layer.name for layer in layers if isinstance(layer, BatchNorm)]
    if len(norms) != len(set(norms)):
        raise CannotStack("a batch norm is used more than once")
    names = {layer.name for layer in layers if isinstance(layer, Linear | Conv2d | BatchNorm)}
    for name, _ in [*module.named_parameters(), *module.named_buffers()]:
        if name.rpartition(".")[0] not in names:
            raise CannotStack(f"tensor {name!r} belongs to no known layer")


def _output(node: fx.Node, numbers: dict[fx.Node, _Value]) -> _Value:
    returned = node.args[0]
    if not isinstance(returned, fx.Node):
        raise CannotStack("its forward returns more than one tensor")
    return numbers[returned]


def _layer(module: nn.Module, node: fx.Node) -> Layer:
    if any(isinstance(value, fx.Node) for value in node.kwargs.values()):
        raise CannotStack(f"{node} is called with a tensor by name")
    match node.op:
        case "call_module":
            return _known_module(str(node.target), module.get_submodule(str(node.target)))
        case "call_function" if node.target in _FUNCTIONS:
            return _each_sample(node.target)
        case "call_function" if node.target is torch.flatten:
            return _flatten(node)
        case "call_method" if node.target == "flatten":
            return _flatten(node)
        case "call_method" if node.target == "relu":
            return _each_sample(torch.relu)
    raise CannotStack(f"{node.op.replace('_', ' ')} {node.target} is not known")


def _known_module(name: str, layer: nn.Module) -> Layer:
    kind = type(layer)
    if kind in _SAMPLE_BY_SAMPLE:
        return _each_sample(layer)
    if kind is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1:
        return _each_sample(layer)
    if kind is nn.Linear:
        return Linear(name, layer.bias is not None)
    if kind is nn.Conv2d:
        return _conv2d(name, layer)  # type: ignore[arg-type]
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        return _batch_norm(name, layer)  # type: ignore[arg-type]
    raise CannotStack(f"layer {name!r} is a {kind.__name__}")


def _conv2d(name: str, layer: nn.Conv2d) -> Layer:
    if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise CannotStack(f"layer {name!r} is a grouped or specially padded convolution")
    return Conv2d(
        name,
        layer.bias is not None,
        kernel=_pair(layer.kernel_size),
        stride=_pair(layer.stride),
        padding=_pair(layer.padding),
        dilation=_pair(layer.dilation),
    )


def _pair(sizes: tuple[int, ...]) -> tuple[int, int]:
    high, wide = sizes
    return high, wide


def _batch_norm(name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d) -> Layer:
    return BatchNorm(name, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)


def _each_sample(function: Callable[..., Tensor]) -> Layer:
    def layer(_stack: Stack, *values: Any, **options: Any) -> Tensor:
        return function(*values, **options)

    return layer


def _flatten(node: fx.Node) -> Layer:
    if node.args[1:] not in ((1,), (1, -1)) and node.kwargs != {"start_dim": 1}:
        raise CannotStack(f"{node} flattens more than each sample by itself")
    return _each_sample(torch.flatten)
