"""A shared key-value store, with the calls of PyTorch's c10d stores."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional, Union

from muster._binding import ffi, lib
from muster._errors import NotFoundError, check, text_of
from muster._handle import Handle, Seconds, milliseconds, wait

Key = Union[str, bytes]
Value = Union[str, bytes, bytearray, memoryview]
Timeout = Union[Seconds, datetime.timedelta, None]


class _Bytes:
    """Arguments as struct mst_bytes, and the memory that these borrow."""

    def __init__(self, items: Iterable[Value]) -> None:
        self.memory = [ffi.from_buffer(_encoded(item)) for item in items]
        self.count = len(self.memory)
        self.array = ffi.new("struct mst_bytes[]", [(ffi.cast("const uint8_t *", one), len(one))
                                                    for one in self.memory])


def _encoded(item: Value) -> Union[bytes, bytearray, memoryview]:
    return item.encode() if isinstance(item, str) else item


def _taken(buffer: Any) -> bytes:
    """The contents of a struct mst_buffer, which is released."""
    try:
        return bytes(ffi.buffer(buffer.data, buffer.size)) if buffer.size > 0 else b""
    finally:
        lib.mst_buffer_free(ffi.addressof(buffer))


class Store(Handle):
    """A store: ``tcp://host:port`` (muster's server or PyTorch's), ``unix:///path``,
    ``file:///path``, ``hash:`` (inside this process), ``etcd2://host:port/directory``,
    ``etcd3://host:port/root``. ``?prefix=P`` puts every key under a prefix.

    Keys and values are bytes; text is encoded as UTF-8. Every call takes a timeout in seconds, or
    that of the store. A store may be used from several threads at once. Ctrl-C ends a call that
    waits. After a fork, the child has to open its own.
    """

    def __init__(self, url: str, *, timeout: Timeout = 300.0) -> None:
        self._timeout_ms = milliseconds(_seconds(timeout))
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_store **")
        # Opening waits as well; until there is a store nothing can be interrupted, so it is asked
        # again and again for a little while.
        code = _open(url.encode(), self._timeout_ms, ret, err)
        check(code, err)
        super().__init__(ret[0])

    @classmethod
    def _of(cls, pointer: Any, timeout_ms: int) -> Store:
        """Take a store that the library has made."""
        store = cls.__new__(cls)
        store._timeout_ms = timeout_ms
        Handle.__init__(store, pointer)
        return store

    def _free(self, pointer: Any) -> None:
        lib.mst_store_close(pointer)

    @property
    def timeout(self) -> float:
        """Seconds that a call may take unless it says otherwise."""
        return self._timeout_ms / 1000

    @timeout.setter
    def timeout(self, timeout: Timeout) -> None:
        self._timeout_ms = milliseconds(_seconds(timeout))

    def _call(self, function: Callable[..., int], arguments: Sequence[Any], timeout: Timeout,
              results: Sequence[Any]) -> None:
        pointer = self._open
        timeout_ms = self._timeout_ms if timeout is None else milliseconds(_seconds(timeout))
        err = ffi.new("struct mst_err *")
        code = wait(lambda: function(pointer, *arguments, timeout_ms, *results, err),
                    self.interrupt)
        check(code, err)

    def interrupt(self) -> None:
        """End the calls that wait in other threads, with CanceledError; if none does, the next
        one that would. The store can be used on."""
        lib.mst_store_interrupt(self._open)

    def set(self, key: Key, value: Value, timeout: Timeout = None) -> None:
        """Set a key."""
        both = _Bytes([key, value])
        self._call(lib.mst_store_set, (both.array[0], both.array[1]), timeout, ())

    def get(self, key: Key, timeout: Timeout = None) -> bytes:
        """Wait until a key exists and return its value."""
        one, ret = _Bytes([key]), ffi.new("struct mst_buffer *")
        self._call(lib.mst_store_get, (one.array[0],), timeout, (ret,))
        return _taken(ret[0])

    def try_get(self, key: Key, timeout: Timeout = None) -> Optional[bytes]:
        """The value of a key if it exists now, else None."""
        one, ret = _Bytes([key]), ffi.new("struct mst_buffer *")
        try:
            self._call(lib.mst_store_try_get, (one.array[0],), timeout, (ret,))
        except NotFoundError:
            return None
        return _taken(ret[0])

    def add(self, key: Key, amount: int, timeout: Timeout = None) -> int:
        """Add to the number under a key, 0 when absent, and return the sum."""
        one, ret = _Bytes([key]), ffi.new("int64_t *")
        pointer = self._open
        timeout_ms = self._timeout_ms if timeout is None else milliseconds(_seconds(timeout))
        err = ffi.new("struct mst_err *")
        code = wait(lambda: lib.mst_store_add(pointer, one.array[0], amount, timeout_ms, ret, err),
                    self.interrupt)
        check(code, err)
        return int(ret[0])

    def check(self, keys: Iterable[Key], timeout: Timeout = None) -> bool:
        """Whether all keys exist."""
        all_keys, ret = _Bytes(keys), ffi.new("bool *")
        self._call(lib.mst_store_check, (all_keys.array, all_keys.count), timeout, (ret,))
        return bool(ret[0])

    def wait(self, keys: Iterable[Key], timeout: Timeout = None) -> None:
        """Wait until all keys exist."""
        all_keys = _Bytes(keys)
        self._call(lib.mst_store_wait, (all_keys.array, all_keys.count), timeout, ())

    def compare_set(self, key: Key, expected: Value, desired: Value,
                    timeout: Timeout = None) -> bytes:
        """Set a key to a desired value if it has the expected one; an empty one also stands for
        "absent". Returns the value of the key afterwards, empty when absent."""
        three, ret = _Bytes([key, expected, desired]), ffi.new("struct mst_buffer *")
        outcome = ffi.new("enum mst_compare_set *")
        self._call(lib.mst_store_compare_set, tuple(three.array), timeout, (outcome, ret))
        return _taken(ret[0])

    def delete_key(self, key: Key, timeout: Timeout = None) -> bool:
        """Delete a key; whether it was there."""
        one, ret = _Bytes([key]), ffi.new("bool *")
        self._call(lib.mst_store_delete, (one.array[0],), timeout, (ret,))
        return bool(ret[0])

    def num_keys(self, timeout: Timeout = None) -> int:
        """How many keys the whole store has, whatever the prefix."""
        ret = ffi.new("int64_t *")
        self._call(lib.mst_store_num_keys, (), timeout, (ret,))
        return int(ret[0])

    def append(self, key: Key, value: Value, timeout: Timeout = None) -> None:
        """Append to the value of a key, empty when absent."""
        both = _Bytes([key, value])
        self._call(lib.mst_store_append, (both.array[0], both.array[1]), timeout, ())

    def multi_get(self, keys: Sequence[Key], timeout: Timeout = None) -> list[bytes]:
        """Wait until all keys exist and return their values, in order."""
        all_keys = _Bytes(keys)
        ret = ffi.new("struct mst_buffer[]", max(all_keys.count, 1))
        self._call(lib.mst_store_multi_get, (all_keys.array, all_keys.count), timeout, (ret,))
        return [_taken(ret[i]) for i in range(all_keys.count)]

    def multi_set(self, keys: Sequence[Key], values: Sequence[Value],
                  timeout: Timeout = None) -> None:
        """Set all keys."""
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values")
        all_keys, all_values = _Bytes(keys), _Bytes(values)
        self._call(lib.mst_store_multi_set, (all_keys.array, all_values.array, all_keys.count),
                   timeout, ())

    def list_keys(self, timeout: Timeout = None) -> list[bytes]:
        """All keys under the store's prefix, without it, in no particular order."""
        ret = ffi.new("struct mst_keys *")
        self._call(lib.mst_store_list, (), timeout, (ret,))
        try:
            return [bytes(ffi.buffer(ret.keys[i].data, ret.keys[i].size))
                    for i in range(ret.count)]
        finally:
            lib.mst_keys_free(ret)

    def queue_push(self, key: Key, value: Value, timeout: Timeout = None) -> None:
        """Put a value at the end of a queue."""
        both = _Bytes([key, value])
        self._call(lib.mst_store_queue_push, (both.array[0], both.array[1]), timeout, ())

    def queue_pop(self, key: Key, block: bool = True, timeout: Timeout = None) -> bytes:
        """Take the front of a queue. Wait for one, or raise NotFoundError when it is empty."""
        one, ret = _Bytes([key]), ffi.new("struct mst_buffer *")
        self._call(lib.mst_store_queue_pop, (one.array[0], block), timeout, (ret,))
        return _taken(ret[0])

    def queue_len(self, key: Key, timeout: Timeout = None) -> int:
        """How many values a queue has."""
        one, ret = _Bytes([key]), ffi.new("int64_t *")
        self._call(lib.mst_store_queue_len, (one.array[0],), timeout, (ret,))
        return int(ret[0])

    def barrier(self, key: Key, size: int, timeout: Timeout = None) -> None:
        """Wait until so many participants have come. A key serves one barrier."""
        one = _Bytes([key])
        self._call(lib.mst_store_barrier, (one.array[0], size), timeout, ())

    def prefix(self, prefix: Key) -> Store:
        """A view in which key ``k`` stands for ``prefix/k``. It shares the connections."""
        one, ret = _Bytes([prefix]), ffi.new("struct mst_store **")
        err = ffi.new("struct mst_err *")
        check(lib.mst_store_prefix(self._open, one.array[0], ret, err), err)
        return Store._of(ret[0], self._timeout_ms)

    def __repr__(self) -> str:
        return f"<muster.Store {'closed' if self.closed else self._peer()}>"

    def _peer(self) -> str:
        stats = ffi.new("struct mst_store_stats *")
        lib.mst_store_stats_init(stats, ffi.sizeof("struct mst_store_stats"))
        lib.mst_store_get_stats(self._open, stats)
        return text_of(stats.peer) or "open"


def _seconds(timeout: Timeout) -> Optional[Seconds]:
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout


def _open(url: bytes, timeout_ms: int, ret: Any, err: Any) -> int:
    left_ms = timeout_ms
    while True:
        code: int = lib.mst_store_open(url, ffi.NULL, min(left_ms, _SLICE_MS), ret, err)
        left_ms -= _SLICE_MS
        if left_ms <= 0 or code not in (lib.MST_ETIMEOUT, lib.MST_ECONN):
            return code


#: How long a call that cannot be interrupted holds signals back.
_SLICE_MS = 50
