import importlib
import json

import pytest


@pytest.mark.timeout(400)
def test_writes_the_round_trip_with_its_ratio_to_openpis_client(tmp_path):
    pytest.importorskip("openpi_client")
    path = tmp_path / "serve.json"
    importlib.import_module("serve_speed").main(["--calls", "2", "--repeats", "1", "--json", str(path)])
    own, peer = json.loads(path.read_text())["figures"]
    assert (own["name"], own["peer"], peer["name"]) == ("robot-rl serve", "openpi-client", "openpi-client")
    assert own["ratio"] > 0
