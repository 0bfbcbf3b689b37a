"""What commands print: results on standard output, never wrapped in the middle of a path."""

from rich.console import Console


def say(text: str) -> None:
    """Print a line; ``[bold]`` and the like are styles in a terminal."""
    Console().print(text, highlight=False, soft_wrap=True)
