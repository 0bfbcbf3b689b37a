"""Write the figures of finished demos into README.md, between its two markers; none is typed in.

.venv/bin/python scripts/demo_block.py outputs/demo [outputs/demo-1 ...]
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- demo:begin -->", "<!-- demo:end -->"


def percent(arm: dict) -> str:
    """A success rate with its 95 % interval."""
    low, high = arm["interval"]
    return f"{arm['success_rate']:.1%} ({low:.1%} to {high:.1%})"


def row(folder: Path) -> str:
    """One demo as a line of the table."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
    gain = result["paired_difference"]
    low, high = gain["interval"]
    same = "unchanged" if result["base_hash_before"] == result["base_hash_after"] else "CHANGED"
    cells = (
        config["seed"],
        len(result["base"]["episodes"]),
        percent(result["base"]),
        percent(result["refined"]),
        f"{gain['value']:+.1%} ({low:+.1%} to {high:+.1%})",
        f"{result['env_steps']:,}",
        f"{result['wall_seconds'] / 60:.1f} min",
        same,
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def block(folders: list[Path]) -> str:
    """The text between the markers."""
    heads = ("seed", "episodes", "base", "refined", "difference", "environment steps", "time", "base weights")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *map(row, folders), ""]
    lines.append("Success rates with 95 % Wilson intervals; the difference is paired by seed.")
    if (ROOT / "docs/assets/demo.png").exists():
        lines += ["", "![Result of the demo](docs/assets/demo.png)"]
    return "\n".join(lines)


def fill(readme: str, text: str) -> str:
    """The README with a new block."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", readme, flags=re.DOTALL)


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), block([Path(word) for word in sys.argv[1:]])))
