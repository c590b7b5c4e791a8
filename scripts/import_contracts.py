"""The import contract that import-linter does not have: *pure* modules.

A pure module decides; it does not act. Neither it nor anything of ours that it imports may import
what brings in time, chance, threads, disk or network. (Clients are held to the same rule towards
servers.) That is import-linter's `forbidden` contract but for two things, the whole of this file:

- `source_modules` may hold wildcards, and `exempt_modules` takes the acting modules of such a
  package out again (a package of rules with one adapter beside them is the usual shape here);
- `planned_modules` are checked from the day they appear. A missing `source_modules` entry stays an
  error, so that renaming a module cannot silently drop it from the contract.

A module in `source_modules` stands for everything below it. Type-checking-only imports count too.
"""

from __future__ import annotations

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


def _package(graph: ImportGraph, name: str) -> list[str]:
    """The module and everything below it; nothing when nobody imports it and it is not ours."""
    if name not in graph.modules:
        return []
    below = [] if graph.is_module_squashed(name) else sorted(graph.find_descendants(name))
    return [name, *below]


__all__ = ["PureContract"]
