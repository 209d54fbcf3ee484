"""Programs are exported under the settings that users have, whatever else tests rank first."""

import pytest

import miniml as ml


@pytest.fixture(autouse=True)
def _as_users_do():
    with ml.context(providers=()):
        yield
