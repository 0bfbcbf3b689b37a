"""Methods are found by name, by entry point and by module:NAME, and each base is refused in one place."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from policies.policy import PolicyError, Supports
from robot_rl import methods
from robot_rl.cli import main
from robot_rl.method_config import MethodConfig
from robot_rl.methods import METHODS, Method, check_base, find


@dataclass(frozen=True)
class OwnConfig(MethodConfig):
    """Of a method of somebody else."""

    strength: float = 1.0
    """how much"""


RAN = []
OWN = Method("own", "does nothing, thoroughly", OwnConfig, lambda config: RAN.append(config) or config.out)
NO_METHOD = 3
HERE = f"{__name__}:OWN"


@pytest.fixture
def entry(monkeypatch):
    """Register this module's method, and one whose package is broken, as another distribution would."""
    registered = [SimpleNamespace(name="own", value=HERE), SimpleNamespace(name="gone", value="gone_away:X")]
    monkeypatch.setattr(methods.importlib.metadata, "entry_points", lambda group: registered)


@pytest.mark.parametrize("name", METHODS)
def test_each_method_leads_to_a_configuration_and_something_to_call(name):
    method = find(name)
    assert method.name == name
    assert issubclass(method.config_class(), MethodConfig)
    assert callable(methods.import_object(method.run))


def test_a_method_of_ones_own_runs_by_its_path(tmp_path, capsys):
    words = ["--policy", "base", "--out", str(tmp_path), "--strength", "2", "--seed", "3"]
    assert main(["refine", HERE, *words]) == 0
    assert (RAN[-1].strength, RAN[-1].seed, RAN[-1].out) == (2.0, 3, tmp_path)
    assert f"--refiner {tmp_path}" in " ".join(capsys.readouterr().out.split()).replace("\n", "")


@pytest.mark.usefixtures("entry")
def test_an_entry_point_is_listed_and_found_and_a_broken_one_left_out(capsys, tmp_path):
    assert main(["refine", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "own       does nothing, thoroughly" in shown
    assert "gone" not in shown
    config = OwnConfig(policy=tmp_path, out=tmp_path)
    assert find("own") is OWN
    assert methods.refine(config) == tmp_path
    assert RAN[-1] is config


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("residul", "No method is called 'residul'; did you mean 'residual'?"),
        (f"{__name__}:NO_METHOD", "is no robot_rl.Method"),
        ("nowhere_at_all:X", "cannot be imported"),
    ],
)
def test_what_is_no_method_is_refused_in_words(reference, said):
    with pytest.raises(ValueError, match=said):
        find(reference)


def test_a_configuration_of_no_known_method_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"No method has the configuration .*OwnConfig"):
        methods.refine(OwnConfig(policy=tmp_path, out=tmp_path))


def test_a_base_that_lacks_what_a_method_needs_is_told_what_would_work():
    closed = SimpleNamespace(spec=SimpleNamespace(name="served", supports=Supports(noise=True)))
    guide = replace(OWN, name="guide", needs=("noise", "velocity"))
    with pytest.raises(
        PolicyError, match=r"guide needs a policy that opens its denoising; 'served' does not"
    ):
        check_base(closed, guide)
    with pytest.raises(PolicyError, match=r"Methods that it allows: .*residual"):
        check_base(closed, guide)
    check_base(closed, replace(guide, needs=("noise",)))


def test_an_unknown_need_is_refused():
    with pytest.raises(ValueError, match=r"needs \['vision'\] are unknown"):
        Method("odd", "", "a:B", "a:b", needs=("vision",))
