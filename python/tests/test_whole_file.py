# SPDX-License-Identifier: Apache-2.0
"""Measures what the report's writer leaves behind: the new file or the old one, never a part, and
nothing of devices, links and modes changed. Every call of the system fails in turn."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from sluice_tools import whole_file

CALLS = ("open", "write", "fchmod", "fsync", "close", "replace", "lstat", "fstat")


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_replaces_the_content_and_keeps_the_mode(tmp_path):
    path = tmp_path / "x"
    path.write_text("old and longer")
    path.chmod(0o600)
    whole_file.write(path, "new \N{GREEK SMALL LETTER ALPHA}")
    assert path.read_text(encoding="utf-8") == "new \N{GREEK SMALL LETTER ALPHA}"
    assert mode_of(path) == 0o600
    assert os.listdir(tmp_path) == ["x"]


def test_a_new_file_has_the_mode_of_the_process(tmp_path):
    before = os.umask(0o027)
    try:
        whole_file.write(tmp_path / "x", "new")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "x") == 0o640


def test_links_are_not_followed(tmp_path):
    target, link = tmp_path / "target", tmp_path / "x"
    target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(OSError, match="a symbolic link, expected a file"):
        whole_file.write(link, "new")
    assert target.read_text() == "old" and link.is_symlink()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(OSError, match="a symbolic link"):
        whole_file.write(tmp_path / "dangling", "new")
    assert not (tmp_path / "nothing").exists()


def test_devices_pipes_and_folders(tmp_path):
    link, pipe = tmp_path / "null", tmp_path / "pipe"
    link.symlink_to("/dev/null")
    whole_file.write(link, "new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and link.is_symlink()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text)
        whole_file.write(pipe, "through a pipe")
    assert read.result() == "through a pipe" and stat.S_ISFIFO(os.lstat(pipe).st_mode)
    with pytest.raises(IsADirectoryError):
        whole_file.write(tmp_path, "new")
    with pytest.raises(FileNotFoundError):
        whole_file.write(tmp_path / "no" / "x", "new")
    assert sorted(os.listdir(tmp_path)) == ["null", "pipe"]


def test_the_file_is_on_the_disk_before_it_has_its_name_and_its_name_after(tmp_path, monkeypatch):
    done = []

    def sync(number):
        done.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")

    def replace(part, path):
        done.append("name")
        os.rename(part, path)

    monkeypatch.setattr(whole_file.os, "fsync", sync)
    monkeypatch.setattr(whole_file.os, "replace", replace)
    whole_file.write(tmp_path / "x", "new")
    assert done == ["file", "name", "folder"]


def test_writers_at_once_all_succeed(tmp_path):
    path = tmp_path / "x"

    def write(letter):
        for _ in range(20):
            whole_file.write(path, letter * 10000)

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(write, "abcdefgh"))  # raises what a writer raised
    found = path.read_text()
    assert found == found[0] * 10000 and os.listdir(tmp_path) == ["x"]


class Failing:
    """Calls of `os` by name that fail once, after so many that succeed."""

    def __init__(self, monkeypatch, allowed):
        self.left, self.failed = allowed, ""
        for name in CALLS:
            monkeypatch.setattr(whole_file.os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name, call):
        def wrapper(*arguments, **keywords):
            self.left -= 1
            if self.left != -1:
                return call(*arguments, **keywords)
            self.failed = name
            if name == "close":  # the number is gone all the same
                call(*arguments, **keywords)
            raise OSError(errno.EIO, "injected")

        return wrapper


@pytest.mark.parametrize("exists", [True, False])
def test_every_call_fails_in_turn(tmp_path, exists):
    path, seen = tmp_path / "x", []
    for allowed in range(40):
        if exists:
            path.write_text("old")
        else:
            path.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            failing = Failing(patch, allowed)
            try:
                whole_file.write(path, "new")
                written = True
            except OSError:
                written = False
        if written:
            assert path.read_text() == "new"
        else:
            assert path.exists() == exists and (not exists or path.read_text() == "old")
        assert os.listdir(tmp_path) == (["x"] if written or exists else [])
        if not failing.failed:
            break
        seen.append((failing.failed, written))
    else:
        pytest.fail("never succeeded")
    refusing = {name for name, written in seen if not written}
    expected = {"lstat", "open", "write", "fsync", "close", "replace"}
    assert refusing == expected | ({"fchmod"} if exists else set())
