"""The import contracts that import-linter does not have: *pure* modules, and *rooms*.

A pure module decides; it does not act. Neither it nor anything of ours that it imports may import
what brings in time, chance, threads, disk or network. (Clients are held to the same rule towards
servers.) That is import-linter's `forbidden` contract but for two things, the whole of this file:

- `source_modules` may hold wildcards, and `exempt_modules` takes the acting modules of such a
  package out again (a package of rules with one adapter beside them is the usual shape here);
- `planned_modules` are checked from the day they appear. A missing `source_modules` entry stays an
  error, so that renaming a module cannot silently drop it from the contract.

A module in `source_modules` stands for everything below it. Type-checking-only imports count too.

The rooms of a package are the folders and files right below it. Each names whom it may import, and
only rooms that stand above it in the list: so there is no circle. An arrow that nobody uses any
more breaks the contract, too, so that the list stays a picture of what is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.helpers import module_expressions_to_modules


class PureContract(Contract):
    """No chain of imports may lead from a pure module to a forbidden one."""

    type_name = "pure"

    source_modules = fields.SetField(subfield=fields.ModuleExpressionField())
    planned_modules = fields.SetField(subfield=fields.StringField(), required=False)
    exempt_modules = fields.SetField(subfield=fields.StringField(), required=False)
    forbidden_modules = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every forbidden chain, shortest first, one per pair of ends."""
        exempt: set[str] = set(self.exempt_modules or ())
        found = module_expressions_to_modules(graph, self.source_modules)
        roots = {module.name for module in found} - exempt
        missing = sorted(name for name in roots if name not in graph.modules)
        if missing:
            raise ValueError(f"not there any more: {', '.join(missing)}; mend the contract")
        roots |= {name for name in self.planned_modules or () if name in graph.modules}
        pure = set(roots)
        for root in roots:
            pure |= graph.find_descendants(root) - exempt
        chains = [
            chain
            for module in sorted(pure)
            for forbidden in sorted(self.forbidden_modules)
            for target in _package(graph, forbidden)
            if (chain := graph.find_shortest_chain(importer=module, imported=target))
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains, "graph": graph})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each chain on one line with the line number of its first import."""
        graph: Any = check.metadata["graph"]
        for chain in check.metadata["chains"]:
            details = graph.get_import_details(importer=chain[0], imported=chain[1])
            line = details[0]["line_number"] if details else "?"
            output.print_error(f"{' -> '.join(chain)} (line {line})", bold=False)
        output.new_line()


class RoomsContract(Contract):
    """Rooms import only rooms that they name, all of which stand above them."""

    type_name = "rooms"

    container = fields.StringField()
    rooms = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare what is declared with what is imported."""
        container: str = str(self.container)
        told: list[str] = [str(line) for line in self.rooms]  # type: ignore[attr-defined]
        declared = {room: names for room, *names in (line.split() for line in told)}
        found = arrows(graph, container)
        faults = [f"{room} is there twice" for room in _twice(line.split()[0] for line in told)]
        above: set[str] = set()
        for room, names in declared.items():
            faults += [f"{room} names {name}, which is not above it" for name in set(names) - above]
            faults += [
                f"{room} names {name} and imports nothing of it"
                for name in names
                if name not in found.get(room, {})
            ]
            above.add(room)
        for room, imported in found.items():
            if room not in declared:
                faults.append(f"{room} is not listed")
                continue
            faults += [
                f"{room} may not import {name}: {importer} -> {target}"
                for name, (importer, target) in imported.items()
                if name not in declared[room]
            ]
        faults += [f"{room} is not there any more" for room in declared if room not in found]
        return ContractCheck(kept=not faults, metadata={"faults": sorted(faults)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each fault."""
        for fault in check.metadata["faults"]:
            output.print_error(fault, bold=False)
        output.new_line()


def arrows(graph: ImportGraph, container: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Room → rooms that it imports, each with one such import. `container` itself is no room."""
    depth = container.count(".") + 1
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for module in sorted(graph.find_descendants(container)):
        room = module.split(".")[depth]
        of_room = found.setdefault(room, {})
        for target in sorted(graph.find_modules_directly_imported_by(module)):
            if not target.startswith(container + "."):
                continue
            name = target.split(".")[depth]
            if name != room:
                of_room.setdefault(name, (module, target))
    return found


def _twice(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _package(graph: ImportGraph, name: str) -> list[str]:
    """The module and everything below it; nothing when nobody imports it and it is not ours."""
    if name not in graph.modules:
        return []
    below = [] if graph.is_module_squashed(name) else sorted(graph.find_descendants(name))
    return [name, *below]


__all__ = ["PureContract", "RoomsContract", "arrows"]
