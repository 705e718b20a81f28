"""Where tools may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_session.errors import ToolError
from agent_session.tools.paths import resolve


def test_a_path_is_relative_to_the_working_folder(folder: Path):
    assert resolve(folder, "src/new.py") == folder / "src/new.py"
    assert resolve(folder, str(folder / "a.py")) == folder / "a.py"
    assert resolve(folder, ".") == folder


@pytest.mark.parametrize("path", ["../other.txt", "src/../../other.txt", "/etc/passwd", "~/notes.txt", ".."])
# Mutation: `resolve` without its is_relative_to check.
def test_a_path_that_leads_out_of_the_working_folder_is_refused(folder: Path, path: str):
    with pytest.raises(ToolError, match="outside of the working folder") as refused:
        resolve(folder, path)
    assert str(refused.value).startswith(path)


# Mutation: `is_relative_to` becomes a comparison of strings (`str(real).startswith(str(root))`).
def test_a_sibling_whose_name_begins_alike_is_outside(folder: Path):
    with pytest.raises(ToolError, match="outside"):
        resolve(folder, f"../{folder.name}-other/file")


# Mutation: os.path.realpath becomes os.path.abspath.
@pytest.mark.parametrize("path", ["link/secret.txt", "link", "file", "hop/secret.txt", "dangling"])
def test_a_symlink_that_leads_out_is_refused_and_its_target_named(folder: Path, path: str):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "hop").symlink_to("link")
    (folder / "dangling").symlink_to(outside / "not there yet")
    with pytest.raises(ToolError, match="outside") as refused:
        resolve(folder, path)
    assert str(outside) in str(refused.value)


def test_a_symlink_inside_is_followed(folder: Path):
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    assert resolve(folder, "link/a.txt") == folder / "real/a.txt"


# Mutation: the roots are compared as given, without realpath.
def test_a_working_folder_that_is_itself_a_symlink_is_no_outside(folder: Path):
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert resolve(link, "a.txt") == folder / "a.txt"
    assert resolve(link, str(link / "a.txt")) == folder / "a.txt"


def test_a_tilde_is_the_home_folder(folder: Path, isolated_environment: Path):
    assert resolve(isolated_environment, "~/notes.txt") == isolated_environment.resolve() / "notes.txt"


def test_further_roots_are_allowed(folder: Path):
    allowed = folder.parent / "allowed"
    assert resolve(folder, str(allowed / "blob"), roots=(allowed,)) == allowed / "blob"
    with pytest.raises(ToolError, match="outside"):
        resolve(folder, str(allowed.parent / "else"), roots=(allowed,))


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "\ud800", "~nobody-of-that-name/x"])
def test_what_is_no_path_is_refused(folder: Path, path: str):
    with pytest.raises(ToolError):
        resolve(folder, path)
