import json
import subprocess
import sys

import pytest

HEAVY = ["pyarrow", "starlette", "tokenizers", "torch", "transformers", "vllm", "wandb"]
CPU_LIMIT_S = 0.3

MEASURE = f"""
import json, sys, time
import gymnasium
before = time.process_time()
import hyperrl
spent_s = time.process_time() - before
print(json.dumps([spent_s, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_hyperrl_is_cheap_and_loads_nothing_heavy():
    results = [json.loads(run(MEASURE)) for _ in range(3)]
    assert [loaded for _, loaded in results] == [[]] * 3
    assert min(spent_s for spent_s, _ in results) < CPU_LIMIT_S


@pytest.mark.parametrize("module", ["hyperrl.envs", "hyperrl.agents", "hyperrl.sampling", "hyperrl.cli"])
def test_torch_is_loaded_only_by_those_who_train(module):
    heavy = {"torch", "transformers", "vllm", "wandb"}
    loaded = run(f"import {module}, sys; print(*({heavy!r} & set(sys.modules)))")
    assert loaded.split() == []


def test_making_an_environment_loads_nothing_heavy():
    code = """
        import sys, hyperrl, gymnasium
        env = gymnasium.make("hyperrl/SortDigits-v0")
        env.reset(seed=0)
        env.step("1")
        """
    lines = [line.strip() for line in code.strip().splitlines()]
    report = f"print(*(set({HEAVY!r}) & set(sys.modules)))"
    assert run("\n".join([*lines, report])).split() == []
