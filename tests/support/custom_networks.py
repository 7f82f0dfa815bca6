"""Networks as a user would write them."""

from torch import Tensor, nn

import anybatch


class TwoLayers(nn.Module):
    """An encoder: from observations [B, …] to features [B, 24]."""

    def __init__(self, spec: anybatch.EnvSpec):
        super().__init__()
        (inputs,) = spec.obs_layout.seen_shape
        self.layers = nn.Sequential(nn.Linear(inputs, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs)


def whole_network(spec: anybatch.EnvSpec) -> anybatch.ActorCritic:
    """An actor-critic of the user's own, heads included."""
    encoder = TwoLayers(spec)
    policy = anybatch.Policy(encoder, nn.Linear(24, spec.action_width), None)
    return anybatch.ActorCritic(policy, None, nn.Linear(24, 1))


def too_few_outputs(_spec: anybatch.EnvSpec) -> anybatch.ActorCritic:
    policy = anybatch.Policy(nn.Identity(), nn.Linear(5, 2), None)
    return anybatch.ActorCritic(policy, None, nn.Linear(5, 1))


def no_features(_spec: anybatch.EnvSpec) -> nn.Module:
    return nn.Flatten(0)


NOT_A_FUNCTION = 3
