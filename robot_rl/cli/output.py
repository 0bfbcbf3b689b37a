"""What commands print: results on standard output, never wrapped in the middle of a path."""

from rich.console import Console
from rich.text import Text


def counted(count: int, word: str) -> str:
    """A number of things in words: ``1 episode``, ``2 episodes``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line.

    Args:
        parts: text, printed as it is whatever brackets a path holds, or text and its style in a terminal.
    """
    Console().print(Text.assemble(*parts), highlight=False, soft_wrap=True)
