import ast
import importlib
import subprocess
import sys

import pytest
from source_tree import ROOT, module_name, parse, source_files

PUBLIC = [
    path
    for path in source_files()
    if path.name != "__main__.py" and not any(part.startswith("_") for part in module_name(path).split("."))
]


def defined(tree: ast.Module) -> set[str]:
    """The functions and classes of a module whose names have no underscore in front."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in tree.body if isinstance(node, kinds)]
    return {node.name for node in nodes if not node.name.startswith("_")}


@pytest.mark.parametrize("path", PUBLIC, ids=module_name)
def test_all_is_what_is_there(path):
    module = importlib.import_module(module_name(path))
    if not path.read_text(encoding="utf-8").strip() or is_only_a_docstring(parse(path)):
        return
    listed = getattr(module, "__all__", None)
    assert listed is not None, "a public module lists its names in __all__"
    assert len(set(listed)) == len(listed)
    assert [name for name in listed if not hasattr(module, name)] == []
    assert sorted(defined(parse(path)) - set(listed)) == []


def is_only_a_docstring(tree: ast.Module) -> bool:
    return len(tree.body) == 1 and ast.get_docstring(tree) is not None


@pytest.mark.parametrize("path", source_files(), ids=module_name)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(parse(path)), "a module starts with a docstring"


def test_the_package_names_are_listed_by_dir():
    hyperrl = importlib.import_module("hyperrl")
    assert set(hyperrl.__all__) <= set(dir(hyperrl))
    with pytest.raises(AttributeError, match="no attribute 'Trajectry'"):
        _ = hyperrl.Trajectry


def test_every_module_imports_without_a_warning():
    names = [module_name(path) for path in source_files() if path.name != "__main__.py"]
    code = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_names_of_accelerators_stand_only_in_one_file():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in source_files()
        if path != ROOT / "hyperrl" / "train" / "device.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if names_an_accelerator(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("device = 'cuda:0'", True),
        ("if torch.cuda.is_available():", True),
        ("use_NPU = True", True),
        ("backend: nccl", True),
        ("HCCL_TIMEOUT", True),
        ("input_ids = inputs", False),
        ("barracuda", False),
    ],
)
def test_a_name_of_an_accelerator_is_found(line, named):
    assert names_an_accelerator(line) is named


def names_an_accelerator(line: str) -> bool:
    words = "".join(character if character.isalpha() else " " for character in line.lower()).split()
    return not {"cuda", "npu", "nccl", "hccl"}.isdisjoint(words)


@pytest.mark.parametrize("path", source_files(), ids=module_name)
def test_no_file_is_a_drawer_for_everything(path):
    assert not {"utils", "util", "common", "helpers", "misc"} & set(module_name(path).split("."))
