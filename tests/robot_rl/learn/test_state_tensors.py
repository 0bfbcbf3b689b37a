import numpy as np
import pytest
import torch

from robot_rl.learn.state_tensors import (
    below,
    load_optimiser,
    optimiser_tensors,
    pack_generator,
    unpack_generator,
)


def _parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.full((2,), 1.0)), torch.nn.Parameter(torch.full((3,), 2.0))]


def _step(parameters: list[torch.nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    sum((parameter**2).sum() for parameter in parameters).backward()
    optimiser.step()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_an_optimiser_goes_on_bit_equal(kind) -> None:
    one = _parameters()
    optimiser = kind(one, lr=0.1)
    for _ in range(3):
        _step(one, optimiser)
    saved = optimiser_tensors(optimiser, "optimiser.actor.")
    other = [torch.nn.Parameter(parameter.detach().clone()) for parameter in one]
    again = kind(other, lr=0.1)
    load_optimiser(again, {**saved, "optimiser.critic.0.step": torch.tensor(9.0)}, "optimiser.actor.")
    _step(one, optimiser)
    _step(other, again)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert float(saved["optimiser.actor.0.step"]) == 3, "what was saved is a copy"


def test_the_names_are_those_of_files_written_before() -> None:
    parameters = _parameters()
    optimiser = torch.optim.AdamW(parameters, lr=0.1)
    assert optimiser_tensors(optimiser, "optimizer.") == {}
    _step(parameters, optimiser)
    entries = ("step", "exp_avg", "exp_avg_sq")
    assert set(optimiser_tensors(optimiser, "optimizer.")) == {
        f"optimizer.{index}.{entry}" for index in (0, 1) for entry in entries
    }


def test_settings_are_not_loaded() -> None:
    parameters = _parameters()
    optimiser = torch.optim.Adam(parameters, lr=0.1)
    _step(parameters, optimiser)
    other = torch.optim.Adam(_parameters(), lr=0.5)
    load_optimiser(other, optimiser_tensors(optimiser, "o."), "o.")
    assert other.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("half_word", [False, True])
def test_a_generator_goes_on_where_it_was(half_word: bool) -> None:
    one = np.random.default_rng(3)
    one.standard_normal(5)
    if half_word:  # 32-bit draws take half of a 64-bit word and keep the other
        one.integers(0, 100, dtype=np.uint32)
    other = np.random.default_rng(0)
    unpack_generator(other, pack_generator(one))
    assert (
        one.integers(0, 100, 3, dtype=np.uint32).tolist()
        == other.integers(0, 100, 3, dtype=np.uint32).tolist()
    )
    assert one.random() == other.random()


def test_a_packed_generator_has_the_layout_of_files_written_before() -> None:
    packed = pack_generator(np.random.default_rng(1))
    state = np.random.default_rng(1).bit_generator.state["state"]
    assert sum(int(word) << (32 * i) for i, word in enumerate(packed[:4])) == state["state"]
    assert sum(int(word) << (32 * i) for i, word in enumerate(packed[4:8])) == state["inc"]
    assert packed[8:].tolist() == [0, 0]


def test_below_takes_whole_prefixes() -> None:
    tensors = {"actor.w": torch.ones(1), "actor2.w": torch.zeros(1), "w": torch.zeros(1)}
    assert list(below(tensors, "actor.")) == ["w"]
