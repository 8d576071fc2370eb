import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
TEXTS = [*PAGES, ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in some languages."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [code for language, code in found if language in languages]


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=title)
def test_python_blocks_run_in_order(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, f"{title(page)}:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", TEXTS, ids=title)
def test_every_block_names_its_language(page):
    languages = {language for language, _ in FENCE.findall(page.read_text(encoding="utf-8"))}
    assert languages <= {"python", "bash", "console", "json", "yaml", "text", "toml"}


@pytest.mark.parametrize("page", TEXTS, ids=title)
def test_make_targets_that_are_named_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z][\w-]*)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", TEXTS, ids=title)
def test_links_to_files_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", TEXTS, ids=title)
def test_files_that_are_named_exist(page):
    named = re.findall(
        r"`((?:hyperrl|tests|docs|scripts|configs|examples|tasks|benchmarks)/[\w./-]+)`",
        page.read_text(encoding="utf-8"),
    )
    paths = [name for name in named if not re.search(r"-v\d+$", name)]  # hyperrl/SortDigits-v0 is an id
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_license_and_the_history_are_there():
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").startswith("# Changelog")


def test_continuous_integration_runs_what_people_run():
    commands = [
        line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if "make" in line
    ]
    assert commands[-1] == "make test"


def test_the_environment_of_the_readme_passes_check(tmp_path):
    page = ROOT / "README.md"
    (code,) = (block for block in blocks(page, "python") if "class Warehouse" in block)
    (tmp_path / "warehouse.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "check", "warehouse:Warehouse-v0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
