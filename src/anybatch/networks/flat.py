"""All parameters of a module in one vector, and all gradients in another.

Zeroing, norms, clipping, the optimizer, averaging and sums over ranks are then one operation each, whatever
the number of layers: on small networks these calls cost as much as the arithmetic.
"""

import torch
from torch import Tensor, nn


def share_storage(parameter: Tensor, chunk: Tensor) -> Tensor:
    """A view of `chunk` [parameter.numel()] in the shape and memory format of `parameter`."""
    if parameter.is_contiguous():
        return chunk.view(parameter.shape)
    if parameter.ndim != 4 or not parameter.is_contiguous(memory_format=torch.channels_last):
        raise ValueError(
            f"parameters must be contiguous or channels_last, not of strides {parameter.stride()}"
        )
    outputs, inputs, height, width = parameter.shape
    return chunk.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def flatten_values(module: nn.Module) -> Tensor:
    """Move the parameters of `module` into one vector, in the order of `parameters()`, and return it."""
    parameters = list(module.parameters())
    values = torch.empty(
        sum(parameter.numel() for parameter in parameters),
        dtype=parameters[0].dtype,
        device=parameters[0].device,
    )
    for parameter, chunk in zip(parameters, _chunks(values, parameters), strict=True):
        parameter.data = share_storage(parameter, chunk).copy_(parameter.data)
    return values


def _chunks(flat: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor, ...]:
    return flat.split([parameter.numel() for parameter in parameters])


class FlatParameters:
    """A vector of values and one of gradients; the module's parameters and their `.grad` are views of them.

    Move the module to its device and dtype first. Autograd adds into the views; zero `grads` instead of
    calling `zero_grad`, which would drop them. The module's `state_dict` and `load_state_dict` work as usual.
    """

    values: Tensor
    grads: Tensor

    def __init__(self, module: nn.Module):
        self.values = flatten_values(module)
        self.grads = torch.zeros_like(self.values)
        parameters = list(module.parameters())
        for parameter, chunk in zip(parameters, _chunks(self.grads, parameters), strict=True):
            parameter.grad = share_storage(parameter, chunk)
        self._parameter = nn.Parameter(self.values)
        self._parameter.grad = self.grads

    def as_parameter(self) -> nn.Parameter:
        """The one parameter an optimizer sees; it shares its memory with `values` and `grads`."""
        return self._parameter
