import subprocess
import sys

import pytest

import sluice.testing


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    assert sluice.testing.__all__ == sorted(sluice.testing.__all__)
    for name in sluice.testing.__all__:
        assert getattr(sluice.testing, name).__doc__, name
        assert name in (sluice.testing.__doc__ or ""), name


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'FakeVender'"):
        sluice.testing.FakeVender  # noqa: B018


def test_importing_it_imports_neither_pytest_nor_asyncio() -> None:
    code = "import sluice.testing, sys; print({'pytest', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
