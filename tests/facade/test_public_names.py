"""What is public: exported in order, documented, and the same in both facades."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice import AsyncLease, AsyncSluice, Lease, Sluice
from sluice.aio import Acquiring
from sluice.core import errors

PUBLIC = ("sluice", "sluice.testing", "sluice.testing.conformance")
RENAMED = {"close": "aclose"}


def exported(module_name: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(module_name)
    return ((f"{module_name}.{name}", getattr(module, name)) for name in module.__all__)


def members(name: str, owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, those that it inherits from Sluice's own classes too."""
    for member in dir(owner):
        found = inspect.getattr_static(owner, member)
        is_method = callable(found) or isinstance(found, property | classmethod | staticmethod)
        defined_in = next((cls for cls in owner.__mro__ if member in vars(cls)), object)
        if not member.startswith("_") and is_method and defined_in.__module__.startswith("sluice"):
            yield f"{name}.{member}", found


ALL = [(name, value) for module in PUBLIC for name, value in exported(module) if callable(value)]
MEMBERS = [member for name, value in ALL if inspect.isclass(value) for member in members(name, value)]


@pytest.mark.parametrize("module_name", PUBLIC)
def test_what_is_exported_is_sorted_and_there(module_name: str) -> None:
    module = importlib.import_module(module_name)
    assert list(module.__all__) == sorted(module.__all__, key=lambda name: (not name.isupper(), name))
    assert module.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Slice'"):
        sluice.Slice  # noqa: B018


@pytest.mark.parametrize(("name", "value"), ALL + MEMBERS, ids=[name for name, _ in ALL + MEMBERS])
def test_every_public_name_has_a_docstring(name: str, value: Any) -> None:
    doc = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    assert doc, name
    assert not doc.startswith(f"{name.rpartition('.')[2]}("), "what a dataclass writes by itself is no docstring"


def test_every_error_is_exported_and_a_sluice_error() -> None:
    found = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert found <= set(sluice.__all__)
    assert all(issubclass(getattr(sluice, name), sluice.SluiceError) for name in found)
    assert issubclass(sluice.ConfigError, ValueError)
    assert issubclass(sluice.WaitTimeout, TimeoutError)


# --- parity ---


def public(owner: type) -> dict[str, Callable[..., Any]]:
    return {name.rpartition(".")[2]: value for name, value in members("", owner)}


def shape(method: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(method).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


@pytest.mark.parametrize(("blocking", "asynchronous"), [(Sluice, AsyncSluice), (Lease, AsyncLease)])
def test_both_facades_have_the_same_methods_parameters_defaults_and_docstrings(
    blocking: type, asynchronous: type
) -> None:
    ours = {RENAMED.get(name, name): value for name, value in public(blocking).items()}
    theirs = public(asynchronous)
    assert set(ours) == set(theirs)
    for name, method in ours.items():
        assert inspect.getdoc(method) == inspect.getdoc(theirs[name]), name
        if not isinstance(method, property):
            assert shape(method) == shape(theirs[name]), name


def test_both_clients_are_made_from_the_same_options() -> None:
    assert shape(Sluice) == shape(AsyncSluice)


def test_both_facades_annotate_the_same_parameters() -> None:
    for name, method in public(Sluice).items():
        if name != "close":
            ours, theirs = inspect.signature(method), inspect.signature(getattr(AsyncSluice, name))
            for parameter in ours.parameters:
                assert ours.parameters[parameter].annotation == theirs.parameters[parameter].annotation, name
            returned = str(ours.return_annotation).replace("Lease", "AsyncLease").replace("HeldAsyncLease", "HeldLease")
            assert str(theirs.return_annotation) in {returned, Acquiring.__name__}, name


IMMEDIATE = {"acquire", "namespace", "refresh", "settle"}
"""What does no I/O, or what is awaited later, is no coroutine in the asyncio facade either."""


def test_what_does_io_is_awaited_and_what_does_none_is_not() -> None:
    for owner in (AsyncSluice, AsyncLease):
        for name, method in public(owner).items():
            if not isinstance(method, property):
                assert inspect.iscoroutinefunction(method) == (name not in IMMEDIATE), name


def test_every_option_of_acquire_is_told_of_in_its_docstring() -> None:
    doc = inspect.getdoc(Sluice.acquire) or ""
    for parameter in list(inspect.signature(Sluice.acquire).parameters)[1:]:
        assert re.search(rf"``{parameter}\b", doc), parameter


def test_the_package_is_typed() -> None:
    assert (Path(sluice.__file__).parent / "py.typed").is_file()
