"""Makes Markdown of docstrings, for the reference pages of the documentation site (mkdocs.yml).

>>> 1 + 1        becomes a block of code, up to the next empty line; Markdown would make a quotation of it
2
:class:`Order`   becomes `Order`
"""

import re

import griffe

ROLE = re.compile(r":(?:attr|class|func|meth|mod):`~?")


def to_markdown(docstring: str) -> str:
    """Fence doctests, and drop the roles of reStructuredText."""
    lines: list[str] = []
    in_code = False
    for line in ROLE.sub("`", docstring).splitlines():
        if not in_code and line.startswith(">>>"):
            lines += ["```pycon", line]
            in_code = True
        elif in_code and not line.strip():
            lines += ["```", line]
            in_code = False
        else:
            lines.append(line)
    return "\n".join([*lines, "```"] if in_code else lines)


class Docstrings(griffe.Extension):
    """Rewrites every docstring once it is read."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Take one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)
