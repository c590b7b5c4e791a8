"""Packages that a node does without: which extra of `pip install 'kvorum[…]'` brings which.

Whatever uses such a package imports it when it is asked to, by `needed`; who lacks it reads what to
install instead of a traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Final

from kv.base.errors import InvalidArgument

EXTRAS: Final = {
    "duckdb": "sql",
    "fsspec": "files",
    "google": "sql",
    "greenlet": "sql",
    "numpy": "sql",
    "opentelemetry": "telemetry",
    "postgast": "sql",
    "prompt_toolkit": "sql",
    "psycopg": "sql",
    "pyarrow": "files",
    "pygments": "sql",
    "pyspark": "spark",
    "re2": "sql",
}


def needed(module: str) -> ModuleType:
    """The module. Raises InvalidArgument: its package is not installed, and what to do."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise InvalidArgument(advice(e) or f"{module} cannot be imported: {e}") from e


def advice(error: ImportError, *, extra: str | None = None) -> str | None:
    """What to install, if this is the lack of an extra's package. `extra`: the one that whoever
    asks needs, where several bring the package.
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS or not isinstance(error, ModuleNotFoundError):
        return None
    extra = extra or EXTRAS[package]
    return f"this needs {package}, which is not installed here: pip install 'kvorum[{extra}]'"


def lacking(extra: str) -> str | None:
    """What to install for it; None: all of it is here."""
    packages = [package for package, of in EXTRAS.items() if of == extra]
    if all(importlib.util.find_spec(package) for package in packages):
        return None
    return f"not installed: pip install 'kvorum[{extra}]'"
