"""What commands print: results on standard output, never wrapped in the middle of a path."""

from rich.console import Console
from rich.text import Text


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line.

    Args:
        parts: text, printed as it is whatever brackets a path holds, or text and its style in a terminal.
    """
    Console().print(Text.assemble(*parts), highlight=False, soft_wrap=True)
