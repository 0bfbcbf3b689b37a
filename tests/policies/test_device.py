import pytest
import torch

from policies.device import check_device


def test_the_cpu_is_everywhere():
    assert check_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["tpu", "", "cuda:99"])
def test_a_device_that_does_not_work_is_refused_with_those_that_do(name):
    with pytest.raises(ValueError, match=f"device is '{name}', which does not work here: allowed is cpu"):
        check_device(name)
