"""Say pip's configuration in uv's words.

uv reads neither pip's files nor its variables, so on a machine that is set up for pip only (a mirror, a folder of
wheels, a certificate, constraints) it would look in the wrong place. This prints shell assignments for what `pip config
list` reports. The rule: what uv was told itself is left alone: nothing is printed about the indexes where uv has a
configuration of its own, and no variable that is set is set again. Values are never printed for people: they may
contain credentials.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# pip's option, uv's variable, and what uv wants between several values.
INDEX_OPTIONS = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("no-index", "UV_NO_INDEX", " "),
)
OTHER_OPTIONS = (
    ("constraint", "UV_CONSTRAINT", " "),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
)
SAME_IN_UV = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}


def pip_options(listing: str) -> dict[str, str]:
    """The options in `pip config list`'s output; a variable beats `[install]`, that beats `[global]`."""
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        key, equals, quoted = line.partition("=")
        section, _, option = key.strip().rpartition(".")
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section)
        if not equals or rank is None:
            continue
        try:
            value = str(ast.literal_eval(quoted))
        except (SyntaxError, ValueError):
            continue
        if option not in found or rank > found[option][0]:
            found[option] = (rank, value)
    return {option: value for option, (_, value) in found.items()}


def uv_variables(options: Mapping[str, str], environment: Mapping[str, str], *, has_uv_config: bool) -> dict[str, str]:
    """The variables of uv for pip's `options`, without those that uv was already told."""
    variables: dict[str, str] = {}
    for option, variable, separator in (() if has_uv_config else INDEX_OPTIONS) + OTHER_OPTIONS:
        values = options.get(option, "").split()
        if option == "no-index":
            values = ["true"] if options.get(option, "").lower() in ("1", "true", "yes", "on") else []
        is_told = variable in environment or SAME_IN_UV.get(variable, variable) in environment
        if values and not is_told:
            variables[variable] = separator.join(values)
    # pip takes the best version of all its indexes, uv by default the first index that has the name.
    if "UV_INDEX" in variables and "UV_INDEX_STRATEGY" not in environment:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def has_uv_config(environment: Mapping[str, str]) -> bool:
    """Whether a person configured uv itself, in one of the places where it looks."""
    user = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    system = [Path(folder) for folder in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if folder]
    places = [folder / "uv" / "uv.toml" for folder in (user, *system, Path("/etc"))]
    return "UV_CONFIG_FILE" in environment or any(place.is_file() for place in places)


def pip_listing() -> str:
    """What `pip config list` says; empty where there is no pip at all."""
    commands = [[sys.executable, "-m", "pip"], *([found] for name in ("pip3", "pip") if (found := shutil.which(name)))]
    for command in commands:
        answer = subprocess.run([*command, "config", "list"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return answer.stdout
    return ""


def main() -> None:
    variables = uv_variables(pip_options(pip_listing()), os.environ, has_uv_config=has_uv_config(os.environ))
    for variable, value in variables.items():
        print(f"export {variable}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
