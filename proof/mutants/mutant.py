"""What a planted bug is: in one file, one text in place of another."""

from dataclasses import dataclass
from pathlib import Path


class Misplanted(Exception):
    """The text that a bug is to replace is not there, or not only once: the code has moved on and the bug must, too."""


@dataclass(frozen=True)
class Mutant:
    """A bug by name, the promise that it breaks, and where it is planted, from `src/sluice` on."""

    name: str
    breaks: str
    file: str
    old: str
    new: str

    @property
    def part(self) -> str:
        """Where in the house it is: core, flow or stores."""
        return self.file.partition("/")[0]

    def plant(self, root: Path) -> None:
        """Put it into the tree below ``root``."""
        path = root / "src" / "sluice" / self.file
        text = path.read_text("utf-8")
        found = text.count(self.old)
        if found != 1:
            raise Misplanted(f"{self.name}: what it replaces stands {found} times in {self.file}, not once")
        path.write_text(text.replace(self.old, self.new), "utf-8")
