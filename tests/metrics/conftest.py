"""Each implementation of the pass in turn."""

import pytest
from metric_implementations import choose


@pytest.fixture(params=["numpy", "portable", "avx2", "avx512"])
def implementation(request, monkeypatch):
    """Each implementation in turn; those that this machine cannot run are skipped."""
    choose(request.param, monkeypatch)
    return request.param
