# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class per status code of the C interface, each also the built-in exception that
a caller would expect. The message is the core's: "op: argument property = found, expected ..."."""


class Error(Exception):
    """Base of every refusal that comes from the library."""


class InvalidArgument(Error, ValueError):
    """The caller's mistake; the message names the argument, what it was and what is allowed."""


class Unsupported(Error, NotImplementedError):
    """A legal call that no kernel of this build and device does; the message says what is."""


class WorkspaceTooSmall(Error, ValueError):
    """A given workspace is too small; the message has the bytes needed."""


class DeviceError(Error, RuntimeError):
    """A CUDA call failed; the message has its name."""


class InternalError(Error, RuntimeError):
    """A bug in Sluice."""


# By status code of sluice.h, in its order; the extension reads this tuple.
BY_CODE = (Error, InvalidArgument, Unsupported, WorkspaceTooSmall, DeviceError, InternalError)
for _class in BY_CODE:
    _class.__module__ = "sluice"
