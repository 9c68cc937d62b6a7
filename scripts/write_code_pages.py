"""Write docs/codes/: one page for each family of finding codes, and an index.

Run it after a change of distbench/codes: `python scripts/write_code_pages.py`.
"""

from __future__ import annotations

from pathlib import Path

from distbench.codes import FAMILIES, Code

FOLDER = Path(__file__).parents[1] / "docs" / "codes"
_NOTE = "<!-- Written by scripts/write_code_pages.py from distbench/codes. -->"


def make_pages() -> dict[str, str]:
    """The text of every page, by file name."""
    pages = {"README.md": _make_index()}
    for family, codes in FAMILIES.items():
        body = "\n".join(_make_section(code) for code in codes)
        pages[f"{family}.md"] = f"{_NOTE}\n\n# Codes: {family}\n\n{body}"
    return pages


def _make_index() -> str:
    rows = [
        f"| [`{code.name}`]({family}.md#{code.name}) | {_name_phases(code)} "
        f"| {_escape_cell(code.signature)} |"
        for family, codes in FAMILIES.items()
        for code in codes
    ]
    return "\n".join(
        [
            _NOTE,
            "",
            "# Finding codes",
            "",
            "`distbench explain CODE` prints the same. In the formulas r is a replica, "
            "N the number",
            "of replicas, G the number of examples of the global batch, n_r that of "
            "replica r, g_r the",
            "gradient of replica r.",
            "",
            "| code | first wrong phase | signature |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _make_section(code: Code) -> str:
    lines = [
        f"## {code.name}",
        "",
        f"*{_name_phases(code)}: {code.signature}*",
        "",
        code.meaning,
        "",
        "```text",
        code.mathematics,
        "```",
        "",
    ]
    for title, body in (("Typically wrong", code.wrong), ("Right", code.right)):
        if body:
            mark = f"<!-- fragment: {code.name}, {title.lower()} -->"
            lines += [f"{title}:", "", mark, "```python", body, "```", ""]
    lines += [f"**To confirm:** {code.confirm}", "", f"**To fix:** {code.fix}", ""]
    if code.fix_alone:
        lines += [f"**On parameter servers:** {code.fix_alone}", ""]
    return "\n".join(lines)


def _name_phases(code: Code) -> str:
    return ", ".join(code.phases) or "no phase"


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the pages and remove those of families that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pages = make_pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
