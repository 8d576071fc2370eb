import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from source_tree import PACKAGES, ROOT, imports, module_name, parse, source_files

from hyperrl.errors import nearest

PLANTS = [
    ("layers only point down", "hyperrl/errors.py", "import hyperrl.trajectory"),
    ("layers only point down", "hyperrl/trajectory.py", "from hyperrl.sampling import Sampler"),
    ("layers only point down", "hyperrl/sampling.py", "import hyperrl.store.text"),
    ("layers only point down", "hyperrl/store/text.py", "import hyperrl.sampling"),
    ("layers only point down", "hyperrl/envs/spaces.py", "import hyperrl.agents.base"),
    ("layers only point down", "hyperrl/agents/base.py", "import hyperrl.train.config"),
    ("layers only point down", "hyperrl/agents/base.py", "import hyperrl.wiring"),
    ("layers only point down", "hyperrl/wiring/__init__.py", "import hyperrl.cli"),
    ("layers only point down", "hyperrl/agents/base.py", "import hyperrl.harness.gateway"),
    ("layers only point down", "hyperrl/harness/gateway/reading.py", "import hyperrl.train.config"),
    (
        "train never imports environments, agents, wiring or tasks",
        "hyperrl/train/losses.py",
        "def late():\n    import hyperrl.envs.core",
    ),
    (
        "train never imports environments, agents, wiring or tasks",
        "hyperrl/train/config.py",
        "import hyperrl_tasks.gsm8k",
    ),
    ("torch only under train", "hyperrl/agents/base.py", "import torch"),
    ("torch only under train", "tasks/hyperrl_tasks/gsm8k/env.py", "import transformers"),
    ("torch only under train", "hyperrl/store/text.py", "from hyperrl.train import losses"),
    (
        "transformers only under train.models",
        "hyperrl/train/learner.py",
        "from transformers import AutoModel",
    ),
    ("tasks use only the public names of envs", "tasks/hyperrl_tasks/gsm8k/env.py", "import hyperrl.store"),
    (
        "no cycle between the parts of a package",
        "hyperrl/envs/spaces.py",
        "import hyperrl.envs.core",
    ),
]


def contract_names(root: Path = ROOT) -> list[str]:
    config = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return [contract["name"] for contract in config["tool"]["importlinter"]["contracts"]]


def broken_contracts(root: Path) -> set[str]:
    """Run import-linter on a copy of the repository."""
    program = Path(sysconfig.get_path("scripts")) / "lint-imports"
    path = os.pathsep.join([str(root), str(root / "tasks")])
    done = subprocess.run(
        [program, "--no-cache"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = dict(
        line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.endswith((" KEPT", " BROKEN"))
    )
    assert set(verdicts) == set(contract_names()), done.stdout + done.stderr
    broken = {name for name, verdict in verdicts.items() if verdict == "BROKEN"}
    assert done.returncode == (1 if broken else 0), done.stdout + done.stderr
    return broken


@pytest.fixture(scope="session")
def pristine(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("contracts")
    ignored = shutil.ignore_patterns("__pycache__", "data")
    for package in PACKAGES.values():
        shutil.copytree(package, root / package.relative_to(ROOT), ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def test_every_contract_holds(pristine):
    assert broken_contracts(pristine) == set()


def test_every_contract_has_a_planted_violation():
    assert {name for name, _, _ in PLANTS} == set(contract_names())


@pytest.mark.parametrize(("contract", "file", "line"), PLANTS, ids=[f"{f}: {x}" for _, f, x in PLANTS])
def test_a_planted_violation_breaks_its_contract(pristine, tmp_path, contract, file, line):
    root = tmp_path / "copy"
    shutil.copytree(pristine, root)
    path = root / file
    assert path.is_file(), f"no {file} to plant in." + nearest(file, [str(p) for p in root.rglob("*.py")])
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    assert contract in broken_contracts(root)


def importers(*wanted: str) -> set[str]:
    """Modules that import one of the packages themselves, anywhere in the file."""
    return {
        module_name(path)
        for path in source_files()
        for module, _ in imports(parse(path))
        if module.split(".")[0] in wanted
    }


def test_only_train_imports_torch():
    assert {name for name in importers("torch") if not name.startswith("hyperrl.train.")} == set()


def test_only_train_models_imports_transformers():
    assert {
        name for name in importers("transformers") if not name.startswith("hyperrl.train.models")
    } == set()


def test_nothing_imports_vllm():
    assert importers("vllm") == set()


TASK_IMPORTS = {
    "hyperrl",
    "hyperrl.envs",
    "hyperrl.envs.grading",
    "hyperrl.envs.sandbox",
    "hyperrl.envs.search",
    "hyperrl.errors",
    "hyperrl.sampling",
    "hyperrl.trajectory",
}


def test_tasks_use_only_public_names():
    strangers = []
    for path in source_files():
        if not module_name(path).startswith("hyperrl_tasks"):
            continue
        for module, name in imports(parse(path)):
            if module.split(".")[0] != "hyperrl":
                continue
            public = module in TASK_IMPORTS and (name is None or name in public_names(module))
            strangers += [] if public else [f"{path.relative_to(ROOT)}: {module} {name or ''}"]
    assert strangers == []


def public_names(module: str) -> list[str]:
    __import__(module)
    return sys.modules[module].__all__
