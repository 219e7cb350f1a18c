"""Draw `demo.svg`: the screen of `fedgem demo`, as it really ran. Run it in this folder."""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

with tempfile.TemporaryDirectory() as folder:
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    # On the PATH, as where the environment is active: the screen then names no folder.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["fedgem", "demo"]
    screen = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=True, text=True
    ).stdout
console = Console(record=True, width=80, file=io.StringIO())
console.print("[bold green]$[/] fedgem demo")
console.print(Text.from_ansi(screen))
console.save_svg(str(Path(__file__).with_name("demo.svg")), title="fedgem demo")
