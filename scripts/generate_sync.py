"""Makes kvorum/sdk/sync.py, the SDK without `await`, from the asynchronous one: `make sync`.

For each class of SOURCES there is one without `Async` in its name, a Facade (kvorum/sdk/facade.py):
it holds the other one, as `_async`, and a portal to its loop. Of its members

- a coroutine is sent to the loop and waited for;
- what begins something, or gives another object of the SDK, gives that one's facade;
- what must run in the caller's thread is copied without `await`: whatever calls a function of the
  user's (`run`), gives rows one by one, or belongs to a `with` block or an iterator;
- anything else asks the other one, at its loop if it is in AT_LOOP.

tests/arch/test_generated_sync.py compares what is checked in.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
TARGET: Final = ROOT / "kvorum" / "sdk" / "sync.py"
SOURCES: Final = {
    "kvorum/sdk/tables.py": (
        "all_rows",
        "AsyncTable",
        "AsyncTransactionTable",
        "AsyncTransaction",
    ),
    "kvorum/sdk/snapshots.py": ("AsyncSnapshotTable", "AsyncSnapshot"),
    "kvorum/sdk/held_locks.py": ("AsyncLock",),
    "kvorum/api/watching.py": ("AsyncWatch",),
    "kvorum/api/procedure_events.py": ("AsyncProcedureEvents",),
    "kvorum/sdk/defining.py": ("AsyncDefining",),
    "kvorum/sdk/running.py": ("AsyncRunning",),
    "kvorum/sdk/scheduling.py": ("AsyncScheduling",),
    "kvorum/sdk/operating.py": ("AsyncOperating",),
    "kvorum/sdk/database.py": ("AsyncDatabase",),
}
LEFT_OUT: Final = {
    *("AsyncDatabase.backend", "AsyncDatabase.where", "AsyncDatabase.patience_ms"),
    *("AsyncSnapshot.info", "AsyncWatch.next", "AsyncWatch.begin", "AsyncLock.lost"),
    "AsyncProcedureEvents.next",
}
AT_LOOP: Final = {"AsyncLock.held", "AsyncLock.check"}  # they read the loop's clock
COPIED: Final = {"__aenter__", "__aexit__", "__aiter__", "__anext__", "run"}
RENAMED: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
}
_HEAD: Final = '''\
"""The SDK without `await`, for any number of threads: calls go through a portal to the loop.
Made by `make sync`: change the asynchronous classes instead.

Ctrl-C while a call waits cancels that call and raises KeyboardInterrupt in the caller; a write that
was under way then has an unknown outcome, as always when nobody waits for the answer.
"""

from __future__ import annotations

'''
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Generator:
    """All sources, and what is made of them."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {
            "Facade": "from kvorum.sdk.facade import Facade",
            "Iterator": "from collections.abc import Iterator",
        }
        self._found: dict[str, ast.ClassDef | Function] = {}
        for path, names in SOURCES.items():
            tree = ast.parse((ROOT / path).read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for alias in node.names:
                        line = ast.unparse(_alone(node, alias))
                        self._imports.setdefault(alias.asname or alias.name, line)
            home = path.removesuffix(".py").replace("/", ".")
            for node in tree.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self._imports[node.targets[0].id] = f"from {home} import {node.targets[0].id}"
                if isinstance(node, ast.ClassDef):
                    self._imports[node.name] = f"from {home} import {node.name}"
                    if node.name in names:
                        self._found[node.name] = node
                elif isinstance(node, Function) and node.name in names:
                    self._found[node.name] = node
        self._classes = {
            name: node for name, node in self._found.items() if isinstance(node, ast.ClassDef)
        }
        self._facades = {
            name
            for name in self._classes
            if not any(name in _bases(other) for other in self._classes.values())
        }

    def source(self) -> str:
        """The whole module."""
        parts = [
            self._class(node) if isinstance(node, ast.ClassDef) else self._function(node)
            for name, node in self._found.items()
            if name in self._facades or isinstance(node, Function)
        ]
        body = "\n\n".join(parts)
        used = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
        imports = [
            line
            for name, line in sorted(self._imports.items())
            if name in used and not isinstance(self._found.get(name), Function)
        ]
        return _tidy(_HEAD + "\n".join(imports) + "\n\n\n" + body)

    def _function(self, node: Function) -> str:
        return _definition(node, node.name, _Copy(set()).body(node))

    def _class(self, node: ast.ClassDef) -> str:
        members = self._members(node)
        names = {
            m.name for m in members if not m.name.startswith("_") or m.name in COPIED
        } - _left_out(node)
        copies = [m for m in members if _is_copied(m)]
        names |= {n for m in copies for n in _asked(m) if n.startswith("_")} & {
            m.name for m in members
        }
        lines = [
            f"class {_plain(node.name)}(Facade[{node.name}]):",
            *_docstring(node),
            "    __slots__ = ()",
            "",
        ]
        for attribute in self._attributes(node):
            lines += [attribute, ""]
        for member in members:
            if member.name in names:
                lines += [textwrap.indent(self._member(node, member, names), "    "), ""]
        return "\n".join(lines)

    def _members(self, node: ast.ClassDef) -> list[Function]:
        own = [m for m in node.body if isinstance(m, Function)]
        inherited = [
            m
            for base in _bases(node)
            if base in self._classes
            for m in self._members(self._classes[base])
        ]
        return own + inherited

    def _attributes(self, node: ast.ClassDef) -> Iterator[str]:
        """A property for each public attribute that `__init__` sets."""
        init = next((m for m in node.body if getattr(m, "name", "") == "__init__"), None)
        if not isinstance(init, ast.FunctionDef):
            return
        given = {a.arg: a.annotation for a in init.args.args}
        after = [*init.body[1:], None]
        for one, following in zip(init.body, after, strict=True):
            if isinstance(one, ast.AnnAssign):
                target, kind = one.target, one.annotation
            elif isinstance(one, ast.Assign) and isinstance(one.value, ast.Name):
                target, kind = one.targets[0], given.get(one.value.id)
            else:
                continue
            if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
                continue
            if f"{node.name}.{target.attr}" in LEFT_OUT or kind is None:
                continue
            lines = ["@property", f"def {target.attr}(self) -> {ast.unparse(kind)}:"]
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                lines.append(f'    """{following.value.value}"""')
            lines.append(f"    return self._async.{target.attr}")
            yield textwrap.indent("\n".join(lines), "    ")

    def _member(self, owner: ast.ClassDef, member: Function, names: set[str]) -> str:
        name = RENAMED.get(member.name, member.name)
        if _is_copied(member):
            return _definition(member, name, _Copy(names).body(member))
        property_ = any(ast.unparse(d) == "property" for d in member.decorator_list)
        call = f"self._async.{name}" + ("" if property_ else f"({_arguments(member)})")
        gives = "" if member.returns is None else ast.unparse(member.returns)
        work = f"self._call({call})" if isinstance(member, ast.AsyncFunctionDef) else call
        if f"{owner.name}.{member.name}" in AT_LOOP:
            work = f"self._at_loop(lambda: {call})"
        if begun := re.fullmatch(r"Beginning\[(\w+)\]", gives):
            work = f"{_plain(begun[1])}(self._portal, self._begun({call}))"
        elif gives in self._facades:
            work = f"{_plain(gives)}(self._portal, {call})"
        if name == "close":
            work = f"self._close({call}, portal={owner.name == 'AsyncDatabase'})"
        return _definition(member, name, work if gives == "None" else f"return {work}")


class _Copy(ast.NodeTransformer):
    """A body without `await`. `names`: the methods that the facade has itself."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def body(self, node: Function) -> str:
        statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
        copied = ast.Module([self.visit(one) for one in statements], [])
        return ast.unparse(ast.fix_missing_locations(copied))

    def visit_Await(self, node: ast.Await) -> ast.AST:
        assert isinstance(node.value, ast.Call)
        call = self.visit(node.value)
        text = ast.unparse(call)
        if text.startswith(("asyncio.", "self._async.")):
            return ast.parse(f"self._call({text})", mode="eval").body
        return call

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = RENAMED.get(node.attr, node.attr)
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if own and node.attr not in self._names:
            node.value = ast.Attribute(node.value, "_async", ast.Load())
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)


def _is_copied(member: Function) -> bool:
    rows = member.returns is not None and "AsyncIterator" in ast.unparse(member.returns)
    return member.name in COPIED or rows


def _asked(member: Function) -> set[str]:
    """Methods of its own that it calls."""
    return {
        n.func.attr
        for n in ast.walk(member)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Name)
        and n.func.value.id == "self"
    }


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def _left_out(node: ast.ClassDef) -> set[str]:
    return {name.partition(".")[2] for name in LEFT_OUT if name.startswith(f"{node.name}.")}


def _plain(text: str) -> str:
    """Words of the asynchronous SDK as those of the other one."""
    text = re.sub(r"\bAsync(?=[A-Z])", "", text)
    return re.sub(r"\basync\s+|\bawait\s+", "", text)


def _signature(text: str) -> str:
    text = re.sub(r"\b(?:Awaitable|Beginning)\[(\w+)\]", r"\1", text)
    return _plain(text.replace("AsyncIterator", "Iterator"))


def _definition(member: Function, name: str, body: str) -> str:
    decorators = [f"@{ast.unparse(d)}" for d in member.decorator_list]
    returns = "" if member.returns is None else f" -> {_signature(ast.unparse(member.returns))}"
    head = f"def {name}({_signature(ast.unparse(member.args))}){returns}:"
    return "\n".join([*decorators, head, *_docstring(member), textwrap.indent(body, "    ")])


def _docstring(node: ast.ClassDef | Function) -> list[str]:
    said = ast.get_docstring(node)
    if said is None:
        return []
    paragraphs = f'"""{_plain(said)}'.split("\n\n")
    width = 80 if 88 < len(paragraphs[-1]) < 93 else 92  # else its quotes would not fit behind it
    filled = "\n\n".join(textwrap.fill(one, width, break_on_hyphens=False) for one in paragraphs)
    quoted = filled + ('\n"""' if "\n" in filled else '"""')
    return textwrap.indent(quoted, "    ").splitlines()


def _arguments(member: Function) -> str:
    """Its parameters, handed on; a facade as what it holds."""

    def given(one: ast.arg) -> str:
        kind = "" if one.annotation is None else ast.unparse(one.annotation)
        return f"{one.arg}._async" if kind.startswith("Async") else one.arg

    positional = [given(one) for one in member.args.args[1:]]
    named = [f"{one.arg}={given(one)}" for one in member.args.kwonlyargs]
    rest = [] if member.args.kwarg is None else [f"**{member.args.kwarg.arg}"]
    return ", ".join(positional + named + rest)


def _alone(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    if isinstance(node, ast.Import):
        return ast.Import([alias])
    return ast.ImportFrom(node.module, [alias], node.level)


def _tidy(source: str) -> str:
    for command in (
        ["check", "--select", "I,UP028", "--fix-only", "--unsafe-fixes", "--quiet"],
        ["format"],
    ):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        done = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True)
        source = done.stdout
    return source


if __name__ == "__main__":
    TARGET.write_text(Generator().source())
