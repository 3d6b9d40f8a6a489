"""`make verify`: regenerate everything, find no difference; format, lint, types, import contracts.

Writers run first and read-only checks after; every check runs, and each failure prints what
mends it. Exit status 1 when any fails.
"""

import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

CHECKS: tuple[tuple[str, list[str], str], ...] = (
    ("generated files", [str(BIN / "slimscale"), "generate", "--check"], "make generate"),
    ("format", [str(BIN / "ruff"), "format", "--check", "."], "make fix"),
    ("lint", [str(BIN / "ruff"), "check", "."], "make fix, then by hand"),
    ("types", [str(BIN / "mypy")], "mend the types it names"),
    ("import contracts", [str(BIN / "lint-imports")], "move the import, or write an ADR"),
)


def main() -> int:
    """Run all checks; return the exit status."""
    console = Console()
    failed = []
    for name, command, remedy in CHECKS:
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode == 0:
            console.print(f"[green]ok[/]      {name} ({seconds:.1f} s)")
            continue
        failed.append(name)
        console.print(f"[red]failed[/]  {name} ({seconds:.1f} s); to mend: {remedy}")
        console.print((done.stdout + done.stderr).strip()[-6000:], markup=False, highlight=False)
    console.print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
