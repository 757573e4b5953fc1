"""The log of a run: one JSON object a line, the first of which says what the run is."""

import json
from pathlib import Path
from typing import Any

from simulator.errors import OutputError

NAME = "log.jsonl"


class Journal:
    """Appends lines to ``log.jsonl`` in a folder; each is on the disk before the next step begins."""

    def __init__(self, folder: Path, header: dict[str, Any], step: int = 0) -> None:
        """Start a log with *header*, or, after *step* steps, keep what it says of those and drop what was undone."""
        self._path = folder / NAME
        self.header = header
        lines = [header]
        if step:
            lines += [line for line in read(folder) if 0 < line.get("step", 0) <= step]
        try:
            self._path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror}") from None

    def write(self, line: dict[str, Any]) -> None:
        """Append one line."""
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the log in *folder*; one that a kill cut short is left out."""
    path = folder / NAME
    if not path.exists():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines
