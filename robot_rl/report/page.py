"""Pieces of a self-contained HTML page. Texts are escaped here; what is called ``html`` is not."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any


@dataclass
class Page:
    """A page that grows from top to bottom.

    Args:
        kicker: small line above the headline.
        headline: what the reader should remember.
        lead: one or two sentences below it.
    """

    kicker: str
    headline: str
    lead: str
    _parts: list[str] = field(default_factory=list)

    def add(self, html: str) -> None:
        """Append finished HTML."""
        self._parts.append(html)

    def section(self, title: str, note: str = "") -> None:
        """Begin a section.

        Args:
            title: its heading.
            note: one or two sentences that say how to read what follows.
        """
        self.add(f"<h2>{escape(title)}</h2>" + (f'<p class="note">{escape(note)}</p>' if note else ""))

    def numbers(self, numbers: Iterable[tuple[str, str, str]]) -> None:
        """Append large numbers: (value, what it is, class ``base``, ``refined`` or empty)."""
        boxes = (
            f'<div class="number {escape(kind)}"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
            for value, label, kind in numbers
        )
        self.add(f'<div class="numbers">{"".join(boxes)}</div>')

    def figures(self, *html: str) -> None:
        """Append figures side by side; below each other on a phone."""
        self.add(f'<div class="pair">{"".join(html)}</div>')

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Append a table; columns after the first are figures, set flush right."""
        self.add(table(header, rows))

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Append names and values, two columns; values are HTML."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{html}</td></tr>" for name, html in facts)
        self.add(f"<table>{rows}</table>")

    def folded(self, summary: str, content: Mapping[str, Any]) -> None:
        """Append JSON that opens with a click."""
        text = escape(json.dumps(content, indent=2, ensure_ascii=False))
        self.add(f"<details><summary>{escape(summary)}</summary><pre>{text}</pre></details>")

    def render(self, footer: str) -> str:
        """The whole document.

        Args:
            footer: last line, plain text.
        """
        style = files("robot_rl.report").joinpath("style.css").read_text(encoding="utf-8")
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escape(self.headline)}</title><style>{style}</style></head><body><main>"
            f'<header><p class="kicker">{escape(self.kicker)}</p><h1>{escape(self.headline)}</h1>'
            f'<p class="lead">{escape(self.lead)}</p></header>'
            + "\n".join(self._parts)
            + f"<footer>{escape(footer)}</footer></main></body></html>\n"
        )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as HTML; columns after the first are figures."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = ["", *[' class="figure"'] * (len(cells) - 1)]
        return "".join(
            f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(header, 'th')}</tr>{body}</table>"


def figure(html: str, caption: str = "") -> str:
    """A figure with a caption in plain text."""
    return (
        f"<figure>{html}" + (f"<figcaption>{escape(caption)}</figcaption>" if caption else "") + "</figure>"
    )


def video(content: bytes, media_type: str, left: str, right: str) -> str:
    """A video of two halves with a title over each, played in a loop without sound."""
    data = base64.b64encode(content).decode()
    return (
        f'<div class="halves"><span>{escape(left)}</span><span>{escape(right)}</span></div>'
        f'<video controls autoplay loop muted playsinline src="data:{media_type};base64,{data}"></video>'
    )


def seed_grid(base: Sequence[bool], refined: Sequence[bool]) -> str:
    """One square per seed: gained, lost, solved by both, solved by none; with a legend."""
    kinds = {(False, True): "gained", (True, False): "lost", (True, True): "both", (False, False): "none"}
    words = {"gained": "only after", "both": "before and after", "lost": "only before", "none": "never"}
    pairs = [kinds[bool(before), bool(after)] for before, after in zip(base, refined, strict=True)]
    squares = "".join(f'<i class="{kind}"></i>' for kind in pairs)
    legend = "".join(
        f'<span><span class="seeds"><i class="{kind}"></i></span>{text}: {pairs.count(kind)}</span>'
        for kind, text in words.items()
    )
    return f'<div class="seeds">{squares}</div><div class="legend">{legend}</div>'
