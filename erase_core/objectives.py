"""Local objectives: what a block is trained on when no gradient reaches it from later blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from .errors import GraphError


class LocalHead(nn.Module):
    """A prediction head on a block's activation, followed by a loss against the target.

    With no `hidden` widths the head is linear; otherwise it is an MLP with ReLU between layers.

    Args:
        features: width of the activation's last dimension.
        loss: maps (logits, target) to a scalar, for example
            `torch.nn.functional.binary_cross_entropy_with_logits`.
        outputs: logits per example. With 1 the last dimension is dropped, so that logits and a
            target of shape [batch] agree.
        hidden: widths of the hidden layers.

    Raises:
        GraphError: if a width is not a positive integer.
    """

    def __init__(
        self,
        features: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        outputs: int = 1,
        hidden: Sequence[int] = (),
    ) -> None:
        super().__init__()
        widths = [features, *hidden, outputs]
        for width in widths:
            if isinstance(width, bool) or not isinstance(width, int) or width < 1:
                raise GraphError(
                    f"LocalHead(features={features!r}, hidden={tuple(hidden)!r}, "
                    f"outputs={outputs!r}): {width!r} must be a positive integer"
                )
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip(widths[:-2], widths[1:-1], strict=True):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        layers.append(nn.Linear(widths[-2], outputs))
        self.layers = nn.Sequential(*layers)
        self.loss = loss
        self.outputs = outputs

    def predict(self, activation: Tensor) -> Tensor:
        """Map an activation [batch, features] to logits [batch] (or [batch, outputs])."""
        logits: Tensor = self.layers(activation)
        return logits.squeeze(-1) if self.outputs == 1 else logits

    def forward(self, activation: Tensor, target: Tensor) -> Tensor:
        """Return the scalar loss of this head's logits against `target`."""
        return self.loss(self.predict(activation), target)
