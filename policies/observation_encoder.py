"""From an observation to one vector per row: normalised vectors, image codes, text code, condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from data.statistics import ScalingRule, scaling
from policies.flow_config import TASK, FlowConfig
from policies.networks import ImageEncoder, TextEncoder
from policies.normalizer import Normalizer
from policies.request import Condition, Observation, batch_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float

    from data.features import Feature
    from data.statistics import FeatureStatistics

Constant = Literal["refuse", "clamp"]


class ObservationEncoder(nn.Module):
    """Concatenates the codes of all inputs of a flow policy.

    Args:
        config: which inputs to read.
        features: key -> Feature of each input except the task text.

    Raises:
        ValueError: if an input has no feature.
    """

    def __init__(self, config: FlowConfig, features: Mapping[str, Feature]) -> None:
        super().__init__()
        if not config.inputs:
            raise ValueError(f"inputs is empty; name some of {sorted(features)}")
        self.config = config
        self.features = dict(features)
        # A key holds dots, which module names may not.
        self.normalizers = nn.ModuleDict()
        self.cameras = nn.ModuleDict()
        size = 0
        for key in config.inputs:
            if key == TASK:
                continue
            if key not in features:
                raise ValueError(f"input {key!r} is not among the features {sorted(features)}")
            feature = features[key]
            if feature.is_image:
                self.cameras[module_name(key)] = ImageEncoder(
                    feature.shape[2], config.image_size, config.image_features
                )
                size += config.observation_steps * config.image_features
            else:
                names = [feature.dimension(index) for index in range(feature.size)]
                self.normalizers[module_name(key)] = Normalizer(key, names)
                size += config.observation_steps * feature.size
        self.text = None
        if TASK in config.inputs:
            self.text = TextEncoder(config.text_vocabulary, config.text_features)
            size += config.text_features
        # Row 0 stands for "no condition".
        self.condition = nn.Embedding(1 + len(config.conditions), config.text_features)
        self.size = size + (config.text_features if config.conditions else 0)

    def fit(self, statistics: Mapping[str, FeatureStatistics], *, constant: Constant = "clamp") -> None:
        """Set the normalisers of the vector inputs from statistics of the training data.

        Args:
            statistics: of each vector input.
            constant: what becomes of a dimension that hardly moved; see `data.statistics.ScalingRule`.

        Raises:
            NormalizationError: naming the feature and dimension that cannot be normalised.
        """
        rule = ScalingRule(mode=self.config.state_normalization, constant=constant)
        for normalizer in self.normalizers.values():
            assert isinstance(normalizer, Normalizer)
            key = normalizer.key
            normalizer.fit(scaling(key, self.features[key], statistics, rule))

    def forward(self, observation: Observation, condition: Condition = None) -> Float[Tensor, "B D"]:
        """Return the code of each row.

        Args:
            observation: see `policies.request.Observation`; entries beyond the inputs are ignored.
            condition: see `policies.request.Condition`.

        Raises:
            ValueError: if an input is missing, has another shape, or is not finite.
        """
        rows = batch_size(observation)
        codes = [self._code(key, observation) for key in self.config.inputs]
        index = self.condition_index(condition, rows)
        if self.config.conditions:
            codes.append(self.condition(index))
        return torch.cat(codes, dim=1)

    def condition_index(self, condition: Condition, rows: int) -> Tensor:
        """Return the embedding row of each condition, (B,).

        Raises:
            ValueError: if a name is unknown or the number of names is not `rows`.
        """
        names: Sequence[str | None] = (
            [condition] * rows if condition is None or isinstance(condition, str) else list(condition)
        )
        known = {None: 0} | {name: index + 1 for index, name in enumerate(self.config.conditions)}
        wrong = [name for name in names if name not in known]
        if wrong or len(names) != rows:
            raise ValueError(
                f"condition {condition!r} for {rows} rows; this policy was trained with "
                f"{self.config.conditions or 'no conditions'}"
            )
        return torch.tensor([known[name] for name in names], device=self.condition.weight.device)

    def vector(self, key: str, observation: Observation) -> Float[Tensor, "B T D"]:
        """Return a vector input in its own units, flattened per step, with its shape checked.

        Raises:
            ValueError: if it is missing or has another shape.
        """
        feature = self.features[key]
        value = self._tensor(key, observation)
        expected = (self.config.observation_steps, *feature.shape)
        if tuple(value.shape[1:]) != expected:
            raise ValueError(
                f"{key!r} has shape {tuple(value.shape)}; expected (B, {', '.join(map(str, expected))})"
            )
        return value.to(torch.float32).flatten(2) if feature.shape else value.to(torch.float32)[..., None]

    def _code(self, key: str, observation: Observation) -> Tensor:
        if key == TASK:
            assert self.text is not None
            texts = observation.get(TASK)
            if texts is None or isinstance(texts, Tensor):
                raise ValueError("the observation lacks the task text under 'task', which this policy reads")
            code: Tensor = self.text(texts)
            return code
        name = module_name(key)
        if name in self.cameras:
            return self._image_code(key, observation)
        normalizer = self.normalizers[name]
        assert isinstance(normalizer, Normalizer)
        return normalizer.normalize(self.vector(key, observation), bounded=True).flatten(1)

    def _image_code(self, key: str, observation: Observation) -> Tensor:
        images = self._tensor(key, observation)
        height, width, channels = self.features[key].shape
        sizes = ((height, width), tuple(self.config.image_size))
        if (
            images.ndim != 5
            or images.dtype != torch.uint8
            or images.shape[1] != self.config.observation_steps
            or tuple(images.shape[2:4]) not in sizes
            or images.shape[4] != channels
        ):
            raise ValueError(
                f"{key!r} is {images.dtype} {tuple(images.shape)}; expected uint8 "
                f"(B, {self.config.observation_steps}, {height}, {width}, {channels})"
            )
        code: Tensor = self.cameras[module_name(key)](images.flatten(0, 1))
        return code.reshape(images.shape[0], -1)

    def _tensor(self, key: str, observation: Observation) -> Tensor:
        value = observation.get(key)
        if not isinstance(value, Tensor):
            raise ValueError(  # noqa: TRY004 - usually it is missing, not mistyped
                f"the observation lacks {key!r}, which this policy reads; it holds {sorted(observation)}. "
                "A missing sensor is never replaced by zeros"
            )
        return value


def module_name(key: str) -> str:
    """Return a feature key as a module name."""
    return key.replace(".", "/")
