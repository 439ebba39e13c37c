"""The structure of the source as numbers: cycles, writes from outside, large classes, names that recur.

In:    the source files (house.py).
Out:   lists of findings; ``python -m tests.architecture.structure`` prints how many there are.
State: none.
Not here: which of them are allowed (test_structure.py).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.architecture.house import ROOT, SOURCE, SourceFile, source_files


def import_graph() -> dict[str, set[str]]:
    """Module -> modules of this project that it imports anywhere: at its start, for types only, or in a function."""
    files = {file.module: file for file in source_files()}
    return {
        module: {
            target
            for import_ in file.imports
            for target in (import_.name, import_.module)
            if target in files and target != module and not _is_package_above(target, module)
        }
        for module, file in files.items()
    }


def _is_package_above(target: str, module: str) -> bool:
    return module.startswith(f"{target}.")


def import_cycles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (strongly connected components)."""
    graph = import_graph()
    reach = {module: _reachable(module, graph) for module in graph}
    left, cycles = sorted(graph), []
    while left:
        module = left.pop(0)
        knot = [module, *(other for other in left if other in reach[module] and module in reach[other])]
        if len(knot) > 1:
            cycles.append(knot)
            left = [other for other in left if other not in knot]
    return sorted(cycles, key=len, reverse=True)


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        for target in graph[todo.pop()]:
            if target not in found:
                found.add(target)
                todo.append(target)
    return found


def classes() -> Iterator[tuple[SourceFile, ast.ClassDef]]:
    """Every class of the source."""
    for file in source_files():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                yield file, node


def methods_of(node: ast.ClassDef) -> int:
    """How many functions a class defines."""
    return sum(isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) for child in node.body)


def classes_over(methods_max: int) -> list[tuple[int, str]]:
    """Classes with more methods than that, the largest first."""
    found = [
        (methods_of(node), f"{file.name} {node.name}") for file, node in classes() if methods_of(node) > methods_max
    ]
    return sorted(found, reverse=True)


def writes_from_outside() -> list[str]:
    """``file:line thing.attribute`` where code assigns an attribute of an object whose class is not in the same file.

    An attribute counts as a file's own if a class of that file names it in ``__slots__``, declares it in its body, or
    assigns it through ``self``. Plain names of the standard library's objects (argparse, sockets) are not told apart.
    """
    own = {file.name: _own_attributes(file) for file in source_files()}
    everybody = set().union(*own.values())
    found = []
    for file in source_files():
        for node in ast.walk(file.tree):
            for target in _targets(node):
                if _is_self(target.value) or target.attr in own[file.name] or target.attr not in everybody:
                    continue
                found.append(f"{file.name}:{target.lineno} {ast.unparse(target)}")
    return found


def _own_attributes(file: SourceFile) -> set[str]:
    found: set[str] = set()
    for cls in ast.walk(file.tree):
        if not isinstance(cls, ast.ClassDef):
            continue
        for node in ast.walk(cls):
            found |= {target.attr for target in _targets(node) if _is_self(target.value)}
        for child in cls.body:
            if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                found.add(child.target.id)
            if isinstance(child, ast.Assign):
                names = [name.id for name in child.targets if isinstance(name, ast.Name)]
                found |= set(names)
                if "__slots__" in names:
                    found |= {node.value for node in ast.walk(child.value) if isinstance(node, ast.Constant)}
    return found


def _targets(node: ast.AST) -> list[ast.Attribute]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return []
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target for target in flat if isinstance(target, ast.Attribute)]


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def recurring_class_names() -> dict[str, list[str]]:
    """Class names that stand in more than one file."""
    places: dict[str, list[str]] = {}
    for file, node in classes():
        places.setdefault(node.name, []).append(file.name)
    return {name: files for name, files in sorted(places.items()) if len(set(files)) > 1}


def recurring_file_names() -> dict[str, int]:
    """File names that stand in more than one folder."""
    count = Counter(file.path.name for file in source_files() if file.path.name != "__init__.py")
    return {name: number for name, number in sorted(count.items()) if number > 1}


def lines_per_folder() -> dict[str, int]:
    """Lines of Python by the folder below heliograph/."""
    count: Counter[str] = Counter()
    for file in source_files():
        parts = file.path.relative_to(SOURCE).parts
        count["/".join(parts[:-1]) or "."] += len(file.path.read_text("utf-8").splitlines())
    return dict(sorted(count.items()))


def root_entries() -> list[str]:
    """What a visitor sees in the checkout's root."""
    made = (".venv", "build", "dist")
    return sorted(path.name for path in ROOT.iterdir() if not path.name.startswith(".") and path.name not in made)


def main() -> None:
    """Print the numbers."""
    cycles = import_cycles()
    print(f"import cycles (all imports): {len(cycles)}, files in them: {sum(map(len, cycles))}")
    for cycle in cycles:
        print("   ", " ".join(module.removeprefix("heliograph.") for module in cycle))
    writes = writes_from_outside()
    print(f"attributes written from outside their file: {len(writes)}")
    for write in writes:
        print("   ", write)
    for methods, name in classes_over(30):
        print(f"class with {methods} methods: {name}")
    print("recurring class names:", len(recurring_class_names()), ", ".join(recurring_class_names()))
    print("recurring file names:", len(recurring_file_names()), ", ".join(recurring_file_names()))
    print("lines per folder:", lines_per_folder())
    print("root entries:", len(root_entries()), root_entries())


if __name__ == "__main__":
    main()
