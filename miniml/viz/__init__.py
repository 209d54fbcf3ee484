"""Graphs as pictures: Mermaid, DOT, and a page that needs nothing but a browser."""

from .page import to_html as to_html
from .text import to_dot as to_dot
from .text import to_mermaid as to_mermaid
