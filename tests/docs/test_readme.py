"""What the documentation shows must run.

Every fenced block of README.md and docs/ whose first word is `python` or `pycon` is a test of its own, named
`file:line`. Each starts with an empty namespace, in an empty directory, with SLUICE_URL naming a SQLite file
that does not exist yet. A second word changes that:

    python continued    runs in the namespace that the block before it left (which is run again first)
    python no-run       must compile, and is not run

Anything else after `python` or `pycon` is an error, so that a typing slip never turns a check off.
"""

import doctest
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ADR = ROOT / "docs" / "adr"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if ADR not in page.parents),
]
FENCE = re.compile(r"\s*(?P<marks>`{3,}|~{3,})\s*(?P<info>[^`]*)")
MODES = {"", "continued", "no-run"}


@dataclass(frozen=True)
class Block:
    path: Path
    line: int  # of the first line inside the fence, counted from 1
    language: str
    mode: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line - 1}"

    def run(self, namespace: dict[str, Any]) -> None:
        if self.language == "pycon":
            self._run_session(namespace)
        else:
            exec(self.compiled(), namespace)

    def compiled(self) -> Any:
        # Leading newlines make a traceback name the line of the page.
        padded = "\n" * (self.line - 1) + self.source
        return compile(padded, str(self.path), "exec", dont_inherit=True)

    def _run_session(self, namespace: dict[str, Any]) -> None:
        session = doctest.DocTestParser().get_doctest(self.source, namespace, self.name, str(self.path), self.line - 1)
        assert session.examples, f"{self.name}: a pycon block without a >>> line checks nothing"
        report: list[str] = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        failed = runner.run(session, out=report.append, clear_globs=False).failed
        namespace.update(session.globs)
        assert not failed, "".join(report)


def blocks_of(path: Path) -> list[Block]:
    blocks: list[Block] = []
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.fullmatch(line)
        if opening is None:
            continue
        closing = re.compile(rf"\s*{opening['marks']}{opening['marks'][0]}*\s*")
        body: list[str] = []
        for _, inner in lines:
            if closing.fullmatch(inner):
                break
            body.append(inner)
        else:
            raise ValueError(f"{path}:{number}: this fence is never closed")
        language, _, mode = opening["info"].strip().partition(" ")
        if language in {"python", "pycon"}:
            source = textwrap.dedent("\n".join(body)) + "\n"
            blocks.append(Block(path, number + 1, language, mode.strip(), source))
    return blocks


def chains_of(path: Path) -> list[list[Block]]:
    """Each block with those that must run before it, itself last."""
    chains: list[list[Block]] = []
    ran: list[Block] = []
    for block in blocks_of(path):
        if block.mode not in MODES or (block.language, block.mode) == ("pycon", "no-run"):
            raise ValueError(f"{block.name}: `{block.language} {block.mode}` is not a kind of block")
        if block.mode == "no-run":
            chains.append([block])
            continue
        if block.mode == "continued" and not ran:
            raise ValueError(f"{block.name}: there is no block before it to continue")
        ran = [*ran, block] if block.mode == "continued" else [block]
        chains.append(ran)
    return chains


CHAINS = [chain for page in PAGES if page.exists() for chain in chains_of(page)]


@pytest.fixture
def _fresh_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        place = home if variable == "HOME" else home / variable.lower()
        place.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(variable, str(place))
    monkeypatch.setenv("SLUICE_URL", f"sqlite:///{work / 'quota.db'}")
    monkeypatch.chdir(work)


@pytest.mark.usefixtures("_fresh_machine")
@pytest.mark.parametrize("chain", CHAINS, ids=[chain[-1].name for chain in CHAINS])
def test_what_the_page_shows_runs(chain: list[Block]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in chain:
        if block.mode == "no-run":
            block.compiled()
        else:
            block.run(namespace)


def test_the_readme_has_a_block_that_runs() -> None:
    shown = [chain[-1] for chain in CHAINS if chain[-1].path == PAGES[0]]
    assert any(block.mode != "no-run" for block in shown), "README.md shows no python block that runs"
