"""Errors as exceptions: one class for each code of <muster/error.h>."""

from __future__ import annotations

from typing import Any

from muster._binding import ffi, lib


class MusterError(Exception):
    """An error. The text says what failed, at which peer, and what to do."""

    #: The code of the C library, see <muster/error.h>.
    code: int = 0
    #: Its name: ``"ETIMEOUT"``.
    name: str = "EUNDEFINED"

    def __init__(self, text: str, system: int = 0) -> None:
        super().__init__(text)
        #: The errno behind it, or 0.
        self.system = system


class InvalidError(MusterError, ValueError):
    """An argument, option or setting is wrong."""


class OutOfMemoryError(MusterError, MemoryError):
    """Out of memory."""


class LimitError(MusterError):
    """A configured limit is reached."""


class ProtocolError(MusterError):
    """The peer broke the wire protocol."""


class SystemCallError(MusterError, OSError):
    """A system call failed."""


class TimedOutError(MusterError, TimeoutError):
    """The deadline passed."""


class NotFoundError(MusterError, LookupError):
    """There is no such key."""


class NotSupportedError(MusterError):
    """This store, backend or server lacks the operation."""


class ConnectionFailedError(MusterError, ConnectionError):
    """The connection failed or was lost; nothing was done."""


class UnknownOutcomeError(ConnectionFailedError):
    """The connection was lost after a write was sent: it may or may not have been done."""


class ResolveError(MusterError, OSError):
    """A host name was not resolved."""


class TypeMismatchError(MusterError, TypeError):
    """The stored value is not a number."""


class ClosedError(MusterError):
    """The rendezvous, the job or the store is closed."""


class SpareError(ClosedError):
    """The rendezvous was closed while this node was a spare. This is not a failure."""


class StateError(MusterError):
    """The stored record is not a rendezvous."""


class CanceledError(MusterError):
    """The call was cancelled."""


class AuthError(MusterError, PermissionError):
    """User, password or certificate was refused."""


class ExpelledError(MusterError):
    """The place of this node is lost or taken."""


class FinishedError(ClosedError):
    """The job has finished. This is not a failure."""


_CLASSES: dict[str, type[MusterError]] = {
    "EINVAL": InvalidError,
    "ENOMEM": OutOfMemoryError,
    "ELIMIT": LimitError,
    "EPROTO": ProtocolError,
    "ESYS": SystemCallError,
    "ETIMEOUT": TimedOutError,
    "ENOTFOUND": NotFoundError,
    "ENOTSUP": NotSupportedError,
    "ECONN": ConnectionFailedError,
    "EUNKNOWN": UnknownOutcomeError,
    "ERESOLVE": ResolveError,
    "ETYPE": TypeMismatchError,
    "ECLOSED": ClosedError,
    "ESPARE": SpareError,
    "ESTATE": StateError,
    "ECANCELED": CanceledError,
    "EAUTH": AuthError,
    "EEXPELLED": ExpelledError,
    "EFINISHED": FinishedError,
}

for _name, _class in _CLASSES.items():
    _class.name = _name
    _class.code = int(getattr(lib, f"MST_{_name}"))


def text_of(pointer: Any) -> str:
    """A C string of the library. Names come from peers, so they may be any bytes."""
    if pointer == ffi.NULL:
        return ""
    raw: bytes = ffi.string(pointer)
    return raw.decode(errors="backslashreplace")


def shown(text: str) -> str:
    """As it can be printed: what is no plain text, such as control characters, as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def error_of(code: int, err: Any) -> MusterError:
    """The exception for the code that a call has returned, with the text of its struct mst_err."""
    name = text_of(lib.mst_errname(code))
    text = text_of(err.msg) if err.code == code else text_of(lib.mst_strerror(code))
    error = _CLASSES.get(name, MusterError)(text, int(err.sys))
    if isinstance(error, OSError) and err.domain == lib.MST_DOMAIN_ERRNO:
        error.errno = error.system
    return error


def check(code: int, err: Any) -> None:
    """Raise unless a call has returned 0."""
    if code != 0:
        raise error_of(code, err)
