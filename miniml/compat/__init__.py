"""The names of other libraries: what to write here instead, for the errors about them."""

from . import elsewhere as elsewhere
