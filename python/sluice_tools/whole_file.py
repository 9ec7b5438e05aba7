# SPDX-License-Identifier: Apache-2.0
"""Replaces a file as a whole, or leaves it as it was; the same discipline as `sluice`'s own writer."""

import contextlib
import errno
import os
import pathlib
import secrets
import stat


def write(path: pathlib.Path, content: str) -> None:
    """Writes a file with a name of its own in the same folder, which takes the place of the old one,
    with its mode, when all of it is on the disk. Devices and pipes are written to, also through a
    link such as /dev/stdout; links to anything else and folders are refused with OSError."""
    data = content.encode("utf-8")
    try:
        old = os.lstat(path)
    except FileNotFoundError:
        _replace(path, data, None)
        return
    if stat.S_ISREG(old.st_mode):
        _replace(path, data, stat.S_IMODE(old.st_mode))
        return
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    _write_in_place(path, data)


def _refuse_link(path: pathlib.Path) -> None:
    raise OSError(errno.ELOOP, "a symbolic link, expected a file (links are not followed)", str(path))


def _write_in_place(path: pathlib.Path, data: bytes) -> None:
    # WHY before it is opened, too: what a link leads to may not be touched, or not be there.
    if path.is_symlink() and (not path.exists() or path.is_file()):
        _refuse_link(path)
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
    with open(number, "wb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(number).st_mode):
            _refuse_link(path)
        _write_all(file.fileno(), data)


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]


def _replace(path: pathlib.Path, data: bytes, mode: int | None) -> None:
    folder = path.parent
    partial = folder / f".sluice-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    # A new file's mode is what the process's mask leaves of 0666.
    number = os.open(partial, flags, 0o666 if mode is None else 0o600)
    try:
        try:
            _write_all(number, data)
            if mode is not None:
                os.fchmod(number, mode)
            os.fsync(number)
        finally:
            os.close(number)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    _keep_entry(folder)


def _keep_entry(folder: pathlib.Path) -> None:
    """The folder's entry on the disk; some file systems know no such thing."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)
