"""A shared key-value store, with the calls of PyTorch's c10d stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from muster._binding import ffi, lib
from muster._errors import NotFoundError, check, text_of
from muster._handle import FOREVER_MS, Handle, Timeout, milliseconds
from muster._wait import aside

#: Text is encoded as UTF-8.
Key = Union[str, bytes]
Value = Union[str, bytes, bytearray, memoryview]

_DEFAULT_MS = 300_000


def _bytes(item: Value) -> tuple[Any, int]:
    """A struct mst_bytes that borrows the memory of its argument."""
    memory = ffi.from_buffer("const uint8_t[]", item.encode() if isinstance(item, str) else item)
    return memory, len(memory)


class _List:
    """An array of struct mst_bytes, and the memory that these borrow."""

    def __init__(self, items: Iterable[Value]) -> None:
        self._memory = [_bytes(item) for item in items]
        self.count = len(self._memory)
        self.array = ffi.new("struct mst_bytes[]", self._memory)


def taken(buffer: Any) -> bytes:
    """The contents of a struct mst_buffer, which is released."""
    try:
        return bytes(ffi.buffer(buffer.data, buffer.size)) if buffer.size > 0 else b""
    finally:
        lib.mst_buffer_free(buffer)


class Store(Handle):
    """A store: ``tcp://host:port`` (muster's server or PyTorch's), ``unix:///path``,
    ``file:///path``, ``hash:`` (inside this process), ``etcd2://host:port/directory``,
    ``etcd3://host:port/root``. ``?prefix=P`` puts every key under a prefix.

    Keys and values are bytes; text is encoded as UTF-8. Timeouts are in seconds; the default is
    that of the store (``None`` for the store itself: no limit). Opening waits until the server is
    reachable. A store is thread-safe, and a waiting thread does not delay the others. Ctrl-C ends a
    waiting call, and the store stays usable. A forked child must open its own.

    Like PyTorch's stores, this one puts a ``/`` in front of keys; with ``bare_keys`` keys are sent
    unchanged.
    """

    def __init__(self, url: str, *, timeout: Timeout = _DEFAULT_MS / 1000,
                 bare_keys: bool = False) -> None:
        self._timeout_ms = milliseconds(timeout, FOREVER_MS)

        def call() -> Any:
            err = ffi.new("struct mst_err *")
            ret = ffi.new("struct mst_store **")
            options = ffi.new("struct mst_store_options *")
            lib.mst_store_options_init(options, ffi.sizeof("struct mst_store_options"))
            options.bare_keys = bare_keys
            check(lib.mst_store_open(url.encode(), options, self._timeout_ms, ret, err), err)
            return ret[0]

        super().__init__(aside(call, discard=lib.mst_store_close))

    @classmethod
    def _of(cls, pointer: Any, timeout_ms: int) -> Store:
        """Wrap a store of the library."""
        store = cls.__new__(cls)
        store._timeout_ms = timeout_ms
        Handle.__init__(store, pointer)
        return store

    def _free(self, pointer: Any) -> None:
        lib.mst_store_close(pointer)

    def _ring(self, pointer: Any) -> None:
        lib.mst_store_interrupt(pointer)

    @property
    def timeout(self) -> float:
        """The default timeout of calls, in seconds."""
        return self._timeout_ms / 1000

    @timeout.setter
    def timeout(self, timeout: Timeout) -> None:
        self._timeout_ms = milliseconds(timeout, FOREVER_MS)

    @property
    def url(self) -> str:
        """The URL without a prefix: another client can open the same store with it."""
        return self._plain(lambda pointer, _: text_of(lib.mst_store_url(pointer)))

    @property
    def key_prefix(self) -> Optional[bytes]:
        """The prefix: ``b"a/b"`` for a view ``b`` of a view ``a``; None if there is none."""
        def look(pointer: Any, _: Any) -> Optional[bytes]:
            prefix = lib.mst_store_key_prefix(pointer)
            return None if prefix.data == ffi.NULL else bytes(ffi.buffer(prefix.data, prefix.size))

        return self._plain(look)

    def interrupt(self) -> None:
        """End the waiting calls of other threads with CanceledError; if there are none, the next
        call that would wait. The store stays usable."""
        self._plain(lambda pointer, _: lib.mst_store_interrupt(pointer))

    # --- calls ---

    def set(self, key: Key, value: Value, timeout: Timeout = None) -> None:
        """Set a key."""
        self._inside(lib.mst_store_set, _bytes(key), _bytes(value),
                     milliseconds(timeout, self._timeout_ms))

    def get(self, key: Key, timeout: Timeout = None) -> bytes:
        """Wait until a key exists and return its value."""
        ret = ffi.new("struct mst_buffer *")
        self._inside(lib.mst_store_get, _bytes(key), milliseconds(timeout, self._timeout_ms), ret)
        return taken(ret)

    def try_get(self, key: Key, timeout: Timeout = None) -> Optional[bytes]:
        """The value of a key if it exists now, else None."""
        ret = ffi.new("struct mst_buffer *")
        try:
            self._inside(lib.mst_store_try_get, _bytes(key),
                         milliseconds(timeout, self._timeout_ms), ret)
        except NotFoundError:
            return None
        return taken(ret)

    def add(self, key: Key, amount: int, timeout: Timeout = None) -> int:
        """Add to the number under a key, 0 if absent, and return the sum."""
        ret = ffi.new("int64_t *")
        self._inside(lib.mst_store_add, _bytes(key), amount,
                     milliseconds(timeout, self._timeout_ms), ret)
        return int(ret[0])

    def check(self, keys: Iterable[Key], timeout: Timeout = None) -> bool:
        """Whether all keys exist."""
        them, ret = _List(keys), ffi.new("bool *")
        self._inside(lib.mst_store_check, them.array, them.count,
                     milliseconds(timeout, self._timeout_ms), ret)
        return bool(ret[0])

    def wait(self, keys: Iterable[Key], timeout: Timeout = None) -> None:
        """Wait until all keys exist."""
        them = _List(keys)
        self._inside(lib.mst_store_wait, them.array, them.count,
                     milliseconds(timeout, self._timeout_ms))

    def compare_set(self, key: Key, expected: Value, desired: Value,
                    timeout: Timeout = None) -> bytes:
        """Set a key to the desired value if it has the expected one; an empty expected value
        also matches an absent key. Returns the value afterwards, empty if absent."""
        ret, outcome = ffi.new("struct mst_buffer *"), ffi.new("enum mst_compare_set *")
        self._inside(lib.mst_store_compare_set, _bytes(key), _bytes(expected), _bytes(desired),
                     milliseconds(timeout, self._timeout_ms), outcome, ret)
        return taken(ret)

    def delete_key(self, key: Key, timeout: Timeout = None) -> bool:
        """Delete a key. Returns whether it existed."""
        ret = ffi.new("bool *")
        self._inside(lib.mst_store_delete, _bytes(key), milliseconds(timeout, self._timeout_ms),
                     ret)
        return bool(ret[0])

    def num_keys(self, timeout: Timeout = None) -> int:
        """The number of keys in the whole store, for any prefix."""
        ret = ffi.new("int64_t *")
        self._inside(lib.mst_store_num_keys, milliseconds(timeout, self._timeout_ms), ret)
        return int(ret[0])

    def append(self, key: Key, value: Value, timeout: Timeout = None) -> None:
        """Append to the value of a key, empty if absent."""
        self._inside(lib.mst_store_append, _bytes(key), _bytes(value),
                     milliseconds(timeout, self._timeout_ms))

    def multi_get(self, keys: Iterable[Key], timeout: Timeout = None) -> list[bytes]:
        """Wait until all keys exist and return their values, in order."""
        them = _List(keys)
        ret = ffi.new("struct mst_buffer[]", max(them.count, 1))
        self._inside(lib.mst_store_multi_get, them.array, them.count,
                     milliseconds(timeout, self._timeout_ms), ret)
        return [taken(ret + i) for i in range(them.count)]

    def multi_set(self, keys: Sequence[Key], values: Sequence[Value],
                  timeout: Timeout = None) -> None:
        """Set all keys, each to the value with the same index."""
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values")
        them, theirs = _List(keys), _List(values)
        self._inside(lib.mst_store_multi_set, them.array, theirs.array, them.count,
                     milliseconds(timeout, self._timeout_ms))

    def list_keys(self, timeout: Timeout = None) -> list[bytes]:
        """All keys under the store's prefix, without it, in no particular order."""
        ret = ffi.new("struct mst_keys *")
        self._inside(lib.mst_store_list, milliseconds(timeout, self._timeout_ms), ret)
        try:
            return [bytes(ffi.buffer(ret.keys[i].data, ret.keys[i].size))
                    for i in range(ret.count)]
        finally:
            lib.mst_keys_free(ret)

    def queue_push(self, key: Key, value: Value, timeout: Timeout = None) -> None:
        """Put a value at the end of a queue."""
        self._inside(lib.mst_store_queue_push, _bytes(key), _bytes(value),
                     milliseconds(timeout, self._timeout_ms))

    def queue_pop(self, key: Key, block: bool = True, timeout: Timeout = None) -> bytes:
        """Take the first value of a queue. Wait for one, or raise NotFoundError if it is empty."""
        ret = ffi.new("struct mst_buffer *")
        self._inside(lib.mst_store_queue_pop, _bytes(key), block,
                     milliseconds(timeout, self._timeout_ms), ret)
        return taken(ret)

    def queue_len(self, key: Key, timeout: Timeout = None) -> int:
        """The number of values in a queue."""
        ret = ffi.new("int64_t *")
        self._inside(lib.mst_store_queue_len, _bytes(key), milliseconds(timeout, self._timeout_ms),
                     ret)
        return int(ret[0])

    def barrier(self, key: Key, size: int, timeout: Timeout = None) -> None:
        """Wait until this many participants have arrived. Then the barrier can be used again.

        A call that fails does not count."""
        self._inside(lib.mst_store_barrier, _bytes(key), size,
                     milliseconds(timeout, self._timeout_ms))

    # --- other handles ---

    def prefix(self, prefix: Key) -> Store:
        """A view in which key ``k`` means ``prefix/k``. It shares the connections."""
        def call(pointer: Any, err: Any) -> Any:
            ret = ffi.new("struct mst_store **")
            check(lib.mst_store_prefix(pointer, _bytes(prefix), ret, err), err)
            return ret[0]

        return Store._of(self._plain(call), self._timeout_ms)

    def clone(self) -> Store:
        """Another handle for the same keys; with tcp it has its own connections."""
        def call(pointer: Any, err: Any) -> Any:
            ret = ffi.new("struct mst_store **")
            check(lib.mst_store_clone(pointer, ret, err), err)
            return ret[0]

        return Store._of(self._plain(call), self._timeout_ms)

    def __repr__(self) -> str:
        return f"<muster.Store {'closed' if self.closed else self.url}>"
