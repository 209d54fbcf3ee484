from ..compat.validator import *  # noqa: F403 - programs import it from here
