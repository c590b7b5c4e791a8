"""Imports users' modules, and finds the procedures that they declare."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from kv.base.errors import InvalidArgument
from procedures.engine.registry import Declared, ProcedureType, declaration, declared_in


def load_types(modules: Sequence[str]) -> list[ProcedureType]:
    """The procedures that these modules declare. Raises InvalidArgument."""
    if not modules:
        raise InvalidArgument("name at least one module with procedures")
    found = [declaration(cls) for cls in declared(modules)]
    if not found:
        raise InvalidArgument(
            f"{', '.join(modules)}: nothing there is decorated with @kvorum.procedure(NAME) or "
            "@kvorum.workflow"
        )
    return found


def declared(modules: Sequence[str]) -> list[Declared]:
    """What these modules declare, which are imported; perhaps nothing. Raises
    InvalidArgument.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # modules beside the user
    for name in modules:
        _import(name)
    return declared_in(modules)


def _import(name: str) -> None:
    what = f"the procedure module {name!r} cannot be imported"
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        hint = (
            "it is looked for in the working directory and on PYTHONPATH"
            if e.name is not None and f"{name}.".startswith(f"{e.name}.")
            else f"it needs {e.name}, which is not installed for {sys.executable}"
        )
        raise InvalidArgument(f"{what}: {e}; {hint}") from e
    except InvalidArgument:
        raise
    except SystemExit as e:  # it would end this process, and look as if all were well
        raise InvalidArgument(
            f"{what}: it ends the process (sys.exit({e.code!r})) when it is imported; put that "
            "under `if __name__ == '__main__':`"
        ) from e
    except Exception as e:  # the user's code may raise anything
        raise InvalidArgument(f"{what}: {type(e).__name__}: {e}; fix it and start again") from e
