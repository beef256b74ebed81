"""Real torch TCPStore clients do everything they can; one JSON line per check on stdout.

    torch_client.py --port P            a server that runs already (ours)
    torch_client.py --own libuv|legacy  torch's own server, inside this process

A check returns what it saw. The caller runs this against both servers and compares, so that the
expectations here are agreement with torch and not only beliefs. Checks marked `fixed` show defects
of torch's servers that ours does not have: they need not hold there.
"""

import argparse
import hashlib
import json
import os
import threading
import time
import traceback
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

IS_OLD = not hasattr(dist.TCPStore, "append")
CHECKS = []

# Long enough for anything that should happen, short for what must not.
PATIENCE = timedelta(seconds=30)
SOON = timedelta(milliseconds=300)


def check(feature=None, fixed=False, alone=False):
    """feature: a method the client must have, or "libuv" for the queues. alone: looks at the whole
    store, so it makes no sense while others use it."""

    def register(function):
        CHECKS.append((function, feature, fixed, alone))
        return function

    return register


class Peers:
    """Makes clients of the server under test, and unique keys."""

    def __init__(self, options):
        self.options = options
        self.port = options.port
        self.master = None
        if options.own:
            self.master = self.make(0, True)
            self.port = self.master.port
        self.name = ""

    def make(self, port, is_master, world_size=None, timeout=PATIENCE):
        more = {} if IS_OLD else {"use_libuv": self.options.own != "legacy"}
        host = "127.0.0.1"
        return dist.TCPStore(host, port, world_size, is_master, timeout, wait_for_workers=True,
                             **more)

    def client(self, world_size=None, timeout=PATIENCE):
        return self.make(self.port, False, world_size, timeout)

    def key(self, suffix=""):
        return f"{self.options.tag}/{self.name}/{suffix}"


def timed(function, *args):
    """(what was raised, whether it took about as long as SOON)"""
    start = time.monotonic()
    try:
        function(*args)
    except RuntimeError as error:
        took = time.monotonic() - start
        in_time = SOON.total_seconds() * 0.9 <= took < SOON.total_seconds() + 10
        return [type(error).__name__, "timeout" in str(error).lower(), in_time]
    return ["nothing raised", False, False]


TIMED_OUT = ["RuntimeError" if IS_OLD else "DistStoreError", True, True]


class Thread(threading.Thread):
    """Runs a function; result() waits for it and passes its exception on."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args = function, args
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self.function(*self.args)
        except BaseException as error:  # passed on
            self.error = error

    def result(self):
        self.join(60)
        if self.is_alive():
            raise AssertionError("still blocked after a minute")
        if self.error is not None:
            raise self.error
        return self.value


class Child:
    """Runs a function in a process of its own; result() waits for what it returns.

    For calls that torch 1.13 cannot bear in threads: its compare_set makes the Python object of
    the answer without holding the interpreter's lock, and sooner or later crashes on it, with its
    own server too.
    """

    def __init__(self, function, *args):
        self.end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.write(write_end, json.dumps(function(*args)).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)

    def result(self):
        with os.fdopen(self.end, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if status != 0:
            raise AssertionError(f"the child ended with {status}")
        return json.loads(answer)


def show(data):
    return data.decode("latin-1")


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, expected {wanted!r}")
    return got


# --- set, get, add ---------------------------------------------------------------------------


@check()
def set_get(p):
    s = p.client()
    s.set(p.key("k"), "v")
    s.set(p.key("k2"), "")
    s.set(p.key("k"), "w")
    return expect([show(s.get(p.key("k"))), show(s.get(p.key("k2")))], ["w", ""])


@check()
def empty_value_alone(p):
    """1.13 sends the end of such a request late."""
    s = p.client()
    s.set(p.key("e"), "")
    return expect(show(p.client().get(p.key("e"))), "")


@check()
def empty_key(p):
    if not p.options.tag:
        raise AssertionError("a tag is needed")
    s = p.client()
    s.set("", p.options.tag)
    return expect(len(s.get("")) > 0, True)


@check()
def binary_value(p):
    s = p.client()
    value = bytes(range(256)) * 3
    # The binding takes text or bytes; text that is not UTF-8 must be bytes.
    s.set(p.key("b"), value)
    return expect(show(p.client().get(p.key("b"))), show(value))


@check()
def unicode_key(p):
    s = p.client()
    s.set(p.key("uni\u00e9\u2603"), "\u20ac")
    return expect(p.client().get(p.key("uni\u00e9\u2603")).decode(), "\u20ac")


@check()
def key_with_nul(p):
    s = p.client()
    s.set(p.key("a\0b"), "1")
    s.set(p.key("a"), "2")
    return expect([show(s.get(p.key("a\0b"))), show(s.get(p.key("a")))], ["1", "2"])


def large(size):
    block = hashlib.sha256(str(size).encode()).digest()
    return (block * (size // len(block) + 1))[:size]


@check()
def large_values(p):
    s, t = p.client(), p.client()
    seen = []
    for size in (1439, 1440, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 5 << 20):
        value = large(size)
        s.set(p.key(str(size)), value)
        got = t.get(p.key(str(size)))
        seen.append(hashlib.sha256(got).hexdigest())
        expect(seen[-1], hashlib.sha256(value).hexdigest())
        s.delete_key(p.key(str(size)))
    return seen


@check()
def large_value_limit(p):
    """8 MiB is what torch's own server takes; so does ours by default."""
    s = p.client()
    value = large(8 << 20)
    s.set(p.key("v"), value)
    got = p.client().get(p.key("v"))
    s.delete_key(p.key("v"))
    return expect(got == value, True)


@check()
def long_key(p):
    s = p.client()
    key = p.key("x" * 8000)
    s.set(key, "v")
    return expect(show(p.client().get(key)), "v")


@check()
def add(p):
    s, t = p.client(), p.client()
    seen = [s.add(p.key("n"), 5), t.add(p.key("n"), -7), s.add(p.key("n"), 0)]
    seen.append(show(s.get(p.key("n"))))
    return expect(seen, [5, -2, -2, "-2"])


@check()
def add_to_text(p):
    s = p.client()
    seen = []
    for text in ("41", " 12abc", "-3", "+4"):
        s.set(p.key("t"), text)
        seen.append(s.add(p.key("t"), 1))
    return expect(seen, [42, 13, -2, 5])


@check()
def add_not_a_number(p):
    """The connection is closed, the value stays."""
    s = p.client()
    s.set(p.key("t"), "abc")
    try:
        s.add(p.key("t"), 1)
        raise AssertionError("add to text was answered")
    except RuntimeError as error:
        name = type(error).__name__
    return expect([name, show(p.client().get(p.key("t")))],
                  ["RuntimeError" if IS_OLD else "DistNetworkError", "abc"])


@check()
def add_extremes(p):
    s = p.client()
    top = (1 << 63) - 1
    seen = [str(s.add(p.key("n"), top)), str(s.add(p.key("n"), -top)), str(s.add(p.key("m"), -top))]
    return expect(seen, [str(top), "0", str(-top)])


@check()
def add_wraps(p):
    s = p.client()
    s.add(p.key("n"), (1 << 63) - 1)
    return expect(str(s.add(p.key("n"), 1)), str(-(1 << 63)))


@check()
def add_concurrent(p):
    def work():
        s = p.client()
        return [s.add(p.key("n"), 1) for _ in range(200)]

    threads = [Thread(work) for _ in range(4)]
    seen = sorted(sum((t.result() for t in threads), []))
    expect(seen, list(range(1, 801)))
    return expect(show(p.client().get(p.key("n"))), "800")


# --- waiting ---------------------------------------------------------------------------------


@check()
def wait_present(p):
    s = p.client()
    s.set(p.key("a"), "1")
    s.set(p.key("b"), "2")
    s.wait([p.key("a"), p.key("b")])
    s.wait([p.key("a"), p.key("a")], PATIENCE)
    s.wait([], PATIENCE)
    return True


def waiting(p, keys):
    """A thread inside wait() that has been heard of, and its client."""
    s = p.client()
    s.set(p.key("began"), "1")
    thread = Thread(s.wait, keys, PATIENCE)
    p.client().wait([p.key("began")], PATIENCE)
    return thread, s


@check()
def wait_woken(p):
    a, b = p.key("a"), p.key("b")
    thread, s = waiting(p, [a, b])
    t = p.client()
    t.set(a, "1")
    t.set(b, "2")
    thread.result()
    return expect(show(s.get(b)), "2")


@check()
def wait_woken_by_add(p):
    thread, s = waiting(p, [p.key("n")])
    p.client().add(p.key("n"), 3)
    thread.result()
    return expect(s.add(p.key("n"), 0), 3)


@check()
def get_blocks(p):
    s = p.client()
    thread = Thread(s.get, p.key("late"))
    p.client().set(p.key("late"), "here")
    return expect(show(thread.result()), "here")


@check()
def wait_timeout(p):
    return expect(timed(p.client().wait, [p.key("never")], SOON), TIMED_OUT)


@check()
def get_timeout(p):
    s = p.client()
    s.set_timeout(SOON)
    return expect(timed(s.get, p.key("never")), TIMED_OUT)


@check()
def wait_timeout_partial(p):
    s = p.client()
    s.set(p.key("a"), "1")
    return expect(timed(s.wait, [p.key("a"), p.key("never")], SOON), TIMED_OUT)


@check(fixed=IS_OLD)
def wait_timeout_in_sync(p):
    """After a timed-out wait the key comes; the late answer must not be taken for another one.

    1.13 does not report that it gave up, so its server can only know from its next
    request; a key that
    comes between the two still confuses that client. Hence the add before the set."""
    s, t = p.client(), p.client()
    expect(timed(s.wait, [p.key("k")], SOON), TIMED_OUT)
    seen = [s.add(p.key("n"), 7) if IS_OLD else 7]
    t.set(p.key("k"), "v")
    t.add(p.key("sync"), 1)
    seen += [s.add(p.key("n"), 7 if IS_OLD else 14), show(s.get(p.key("k")))]
    seen.append(s.delete_key(p.key("k")))
    return expect(seen, [7, 14, "v", True])


@check(fixed=IS_OLD)
def wait_timeout_again(p):
    """A second wait after a timed-out one waits for its own key alone."""
    s, t = p.client(), p.client()
    expect(timed(s.wait, [p.key("a")], SOON), TIMED_OUT)
    s.add(p.key("n"), 1)
    thread = Thread(s.wait, [p.key("b")], PATIENCE)
    t.set(p.key("a"), "1")
    t.add(p.key("sync"), 1)
    t.set(p.key("b"), "1")
    thread.result()
    return expect([s.add(p.key("n"), 1), s.add(p.key("n"), 1)], [2, 3])


@check()
def wait_timeouts_many(p):
    s = p.client()
    if IS_OLD:
        for i in range(3):
            expect(timed(s.wait, [p.key(f"never{i}")], SOON), TIMED_OUT)
    else:
        for i in range(12):
            try:
                s.wait([p.key("never")], timedelta(milliseconds=i % 3))
                raise AssertionError("a key that nobody set")
            except dist.DistStoreError:
                pass
    return expect([s.add(p.key("n"), 2), show(s.get(p.key("n")))], [2, "2"])


@check(feature="append")
def wait_zero(p):
    """Timeout 0 means at once: the cancel shares a segment with the wait."""
    s = p.client()
    start = time.monotonic()
    try:
        s.wait([p.key("never")], timedelta(0))
        raise AssertionError("a key that nobody set")
    except dist.DistStoreError:
        pass
    expect(time.monotonic() - start < 5, True)
    return expect(s.add(p.key("n"), 1), 1)


@check()
def wait_many_waiters(p):
    clients = [p.client() for _ in range(12)]
    threads = [Thread(c.wait, [p.key("go")], PATIENCE) for c in clients]
    p.client().set(p.key("go"), "1")
    for thread in threads:
        thread.result()
    return True


@check()
def wait_many_keys(p):
    s, t = p.client(), p.client()
    keys = [p.key(str(i)) for i in range(1000)]
    thread = Thread(s.wait, keys, PATIENCE)
    for key in keys:
        t.set(key, "x")
    thread.result()
    return expect(s.add(p.key("n"), 1), 1)


@check()
def wait_seen_then_deleted(p):
    """A key that came counts although it is deleted before the others come."""
    a, b = p.key("a"), p.key("b")
    s, t = p.client(), p.client()
    arrived = p.key("arrived")
    s.set(arrived, "1")
    thread = Thread(s.wait, [a, b], PATIENCE)
    t.wait([arrived], PATIENCE)
    # Nothing tells when the wait itself has arrived; the outcome is the same either way, because
    # the key is set and deleted until the waiter has gone.
    while thread.is_alive():
        t.set(a, "1")
        t.delete_key(a)
        t.set(b, "1")
        t.add(p.key("sync"), 1)
        if thread.is_alive():
            t.delete_key(b)
    thread.result()
    return True


# --- check, compare_set, delete --------------------------------------------------------------


@check(feature="check")
def check_keys(p):
    s = p.client()
    s.set(p.key("a"), "")
    s.set(p.key("b"), "1")
    seen = [s.check([p.key("a"), p.key("b")]), s.check([p.key("a"), p.key("zz")]), s.check([]),
            s.check([p.key("zz")])]
    return expect(seen, [True, False, True, False])


@check()
def compare_set_table(p):
    s = p.client()
    k = p.key("cs")
    seen = [
        show(s.compare_set(k, "exp", "new")),  # missing, something expected: nothing, and the lie
        show(s.compare_set(k, "", "v1")),  # missing, nothing expected: stored
        show(s.compare_set(k, "bad", "v2")),  # another value
        show(s.compare_set(k, "", "v3")),  # nothing expected, but it exists
        show(s.compare_set(k, "v1", "v2")),  # match
        show(s.get(k)),
        show(s.compare_set(k, "v2", "v2")),
        show(s.compare_set(k, "v2", "")),  # to an empty value
        show(s.compare_set(k, "", "v4")),  # an empty value matches
        show(s.get(k)),
    ]
    return expect(seen, ["exp", "v1", "v1", "v1", "v2", "v2", "v2", "", "v4", "v4"])


@check(alone=True)
def compare_set_miss_makes_no_key(p):
    s = p.client()
    before = s.num_keys()
    s.compare_set(p.key("none"), "x", "y")
    return expect(s.num_keys() - before, 0)


@check()
def compare_set_prefix_of_value(p):
    s = p.client()
    s.set(p.key("k"), "abc")
    return expect([show(s.compare_set(p.key("k"), "ab", "x")),
                   show(s.compare_set(p.key("k"), "abcd", "x")),
                   show(s.compare_set(p.key("k"), "abc", "x"))], ["abc", "abc", "x"])


@check()
def compare_set_race(p):
    """Of many clients, one wins."""

    def work(name):
        return show(p.client().compare_set(p.key("k"), "", name))

    runner = Child if IS_OLD else Thread
    runners = [runner(work, f"w{i}") for i in range(8)]
    winners = {one.result() for one in runners}
    expect(len(winners), 1)
    return expect(show(p.client().get(p.key("k"))) in winners, True)


@check(fixed=True)
def compare_set_wakes(p):
    k = p.key("k")
    s = p.client()
    s.set(p.key("began"), "1")
    thread = Thread(timed, s.wait, [k], timedelta(seconds=3))
    t = p.client()
    t.wait([p.key("began")], PATIENCE)
    # Whether the wait has arrived yet cannot be seen from outside; time makes it very likely, and
    # if it has not, the check only shows less.
    time.sleep(0.2)
    t.compare_set(k, "", "v")
    expect(thread.result(), ["nothing raised", False, False])
    return expect(show(s.get(k)), "v")


@check()
def delete(p):
    s = p.client()
    s.set(p.key("k"), "v")
    seen = [s.delete_key(p.key("k")), s.delete_key(p.key("k")), s.delete_key(p.key("none"))]
    seen.append(timed(s.wait, [p.key("k")], SOON))
    return expect(seen, [True, False, False, TIMED_OUT])


@check(alone=True)
def num_keys(p):
    s = p.client()
    before = s.num_keys()
    s.set(p.key("a"), "1")
    s.set(p.key("a"), "2")
    s.add(p.key("b"), 1)
    s.compare_set(p.key("c"), "", "1")
    seen = [s.num_keys() - before]
    s.delete_key(p.key("a"))
    seen.append(s.num_keys() - before)
    return expect(seen, [3, 2])


# --- append, multi_*, queues, list, barrier (2.1 and later) -----------------------------------


@check(feature="append")
def append(p):
    s = p.client()
    s.append(p.key("ap"), "xy")
    s.append(p.key("ap"), "z")
    s.append(p.key("ap"), "")
    s.append(p.key("e"), "")
    return expect([show(s.get(p.key("ap"))), show(s.get(p.key("e")))], ["xyz", ""])


@check(feature="append")
def append_wakes(p):
    thread, s = waiting(p, [p.key("k")])
    p.client().append(p.key("k"), "v")
    thread.result()
    return expect(show(s.get(p.key("k"))), "v")


@check(feature="append")
def append_binary_and_large(p):
    s = p.client()
    value = large(1 << 20)
    for _ in range(3):
        s.append(p.key("k"), value)
    s.add(p.key("sync"), 1)  # appends are not answered; this is, after them
    return expect(p.client().get(p.key("k")) == value * 3, True)


@check(feature="multi_set")
def multi(p):
    s, t = p.client(), p.client()
    keys = [p.key(n) for n in ("m1", "m2", "m3", "m1")]
    s.multi_set(keys[:3], ["a", "", "\u20ac"])
    seen = [show(v) for v in s.multi_get(keys)]
    thread = Thread(t.multi_get, [p.key("m1"), p.key("late")])
    s.set(p.key("late"), "x")
    seen += [show(v) for v in thread.result()]
    seen += [len(s.multi_get([])), s.add(p.key("n"), 1)]
    return expect(seen, ["a", "", "\u00e2\u0082\u00ac", "a", "a", "x", 0, 1])


@check(feature="multi_set")
def multi_large(p):
    s, t = p.client(), p.client()
    keys = [p.key(str(i)) for i in range(300)]
    values = [large(10000 + i) for i in range(300)]
    s.multi_set(keys, [v.decode("latin-1") for v in values])
    got = t.multi_get(keys)
    return expect([v.decode("utf-8") for v in got] == [v.decode("latin-1") for v in values], True)


@check(feature="multi_set")
def multi_get_timeout(p):
    s = p.client(timeout=SOON)
    s.set(p.key("a"), "1")
    expect(timed(s.multi_get, [p.key("a"), p.key("never")]), TIMED_OUT)
    return expect(s.add(p.key("n"), 1), 1)


@check(feature="multi_set")
def multi_set_wakes(p):
    thread, s = waiting(p, [p.key("a"), p.key("b")])
    p.client().multi_set([p.key("b"), p.key("a")], ["2", "1"])
    thread.result()
    return expect([show(s.get(p.key("a"))), show(s.get(p.key("b")))], ["1", "2"])


@check(feature="libuv")
def queue(p):
    s, t = p.client(), p.client()
    q = p.key("q")
    seen = [s.queue_len(q)]
    for value in ("a", "", "ccc"):
        s.queue_push(q, value)
    seen += [s.queue_len(q), show(t.queue_pop(q)), show(s.queue_pop(q, False)),
             show(t.queue_pop(q)), t.queue_len(q)]
    try:
        s.queue_pop(q, False)
        raise AssertionError("an item out of nothing")
    except dist.QueueEmptyError:
        seen.append("empty")
    return expect(seen, [0, 3, "a", "", "ccc", 0, "empty"])


@check(feature="libuv")
def queue_pop_blocks(p):
    s = p.client()
    q = p.key("q")
    thread = Thread(s.queue_pop, q)
    p.client().queue_push(q, "item")
    seen = [show(thread.result()), s.queue_len(q)]
    s.set_timeout(SOON)
    seen.append(timed(s.queue_pop, q))
    seen.append(s.add(p.key("n"), 1))
    return expect(seen, ["item", 0, TIMED_OUT, 1])


@check(feature="libuv")
def queue_counts_as_key(p):
    s = p.client()
    q = p.key("q")
    before = s.check([q])
    s.queue_push(q, "x")
    seen = [before, s.check([q])]
    s.wait([q], PATIENCE)
    s.queue_pop(q)
    seen.append(s.check([q]))
    return expect(seen, [False, True, False])


@check(feature="libuv")
def queue_and_key_are_apart(p):
    s = p.client()
    k = p.key("k")
    s.set(k, "value")
    s.queue_push(k, "item")
    seen = [show(s.get(k)), s.queue_len(k), s.delete_key(k), s.queue_len(k), show(s.queue_pop(k))]
    return expect(seen, ["value", 1, True, 1, "item"])


@check(feature="libuv", alone=True)
def queue_is_no_key(p):
    s = p.client()
    before = s.num_keys()
    s.queue_push(p.key("q"), "x")
    return expect([s.num_keys() - before, p.key("q") in s.list_keys()], [0, False])


@check(feature="libuv", fixed=True)
def queue_workers(p):
    """Every pushed item reaches one of the blocked poppers."""
    q = p.key("q")
    results = []

    def work():
        s = p.client(timeout=timedelta(seconds=20))
        mine = []
        while True:
            try:
                item = show(s.queue_pop(q))
            except dist.QueueEmptyError:
                continue  # another was faster after the wake-up
            if item == "stop":
                return mine
            mine.append(item)

    threads = [Thread(work) for _ in range(4)]
    s = p.client()
    for i in range(200):
        s.queue_push(q, f"{i:03d}")
    for _ in threads:
        s.queue_push(q, "stop")
    for thread in threads:
        results += thread.result()
    return expect(sorted(results) == [f"{i:03d}" for i in range(200)], True)


@check(feature="list_keys")
def list_keys(p):
    s = p.client()
    for name in ("a", "b", "\u00e9"):
        s.set(p.key(name), "1")
    s.add(p.key("n"), 1)
    s.delete_key(p.key("a"))
    mine = sorted(k for k in s.list_keys() if k.startswith(p.key()))
    return expect([k[len(p.key()):] for k in mine], ["b", "n", "\u00e9"])


@check(feature="list_keys", alone=True)
def list_keys_counts(p):
    s = p.client(world_size=3)
    # num_keys counts init/, list_keys does not show it.
    return expect(s.num_keys() - len(s.list_keys()), 1)


@check(feature="barrier")
def barrier(p):
    key = p.key("bar")
    threads = [Thread(p.client().barrier, key, 3, PATIENCE) for _ in range(2)]
    s = p.client()
    # The counter is an ordinary key.
    s.wait([key], PATIENCE)
    s.barrier(key, 3, PATIENCE)
    for thread in threads:
        thread.result()
    seen = [show(s.get(key))]
    s.barrier(key, 1, PATIENCE)
    seen.append(s.add(p.key("n"), 1))
    return expect(seen, ["3", 1])


@check(feature="barrier")
def barrier_timeout(p):
    s = p.client()
    seen = timed(s.barrier, p.key("b"), 2, SOON)
    expect(seen, TIMED_OUT)
    return expect(s.add(p.key("n"), 1), 1)


@check(feature="barrier", fixed=True)
def barrier_forgets_the_dead(p):
    """A client that gave up does not count."""
    key = p.key("b")
    s, t = p.client(), p.client()
    expect(timed(s.barrier, key, 2, SOON), TIMED_OUT)
    expect(timed(t.barrier, key, 2, SOON), TIMED_OUT)
    thread = Thread(s.barrier, key, 2, PATIENCE)
    t.barrier(key, 2, PATIENCE)
    thread.result()
    return expect(show(s.get(key)), "2")


@check(feature="clone")
def clone(p):
    s = p.client()
    t = s.clone()
    s.set(p.key("k"), "v")
    s.add(p.key("sync"), 1)
    seen = [show(t.get(p.key("k")))]
    thread = Thread(s.wait, [p.key("late")], PATIENCE)
    t.set(p.key("late"), "x")
    thread.result()
    return expect(seen, ["v"])


# --- PrefixStore, worker counting ------------------------------------------------------------


@check()
def prefix(p):
    tcp = p.client()
    tag = p.key("pre")
    outer = dist.PrefixStore("outer", dist.PrefixStore(tag, tcp))
    outer.set("k", "v")
    seen = [show(tcp.get(f"{tag}/outer/k"))]
    tcp.set(f"{tag}/outer/k2", "w")
    seen += [show(outer.get("k2")), outer.add("n", 2), show(tcp.get(f"{tag}/outer/n")),
             outer.delete_key("k"), outer.delete_key("k")]
    seen.append(show(outer.compare_set("cs", "", "1")))
    empty = dist.PrefixStore("", dist.PrefixStore(tag, tcp))
    empty.set("k", "e")
    seen.append(show(tcp.get(f"{tag}//k")))
    seen.append(outer.num_keys() == tcp.num_keys() or not p.options.alone)
    return expect(seen, ["v", "w", 2, "2", True, False, "1", "e", True])


@check()
def prefix_waits(p):
    s = dist.PrefixStore(p.key("p"), p.client())
    thread = Thread(s.wait, ["k"], PATIENCE)
    dist.PrefixStore(p.key("p"), p.client()).set("k", "v")
    thread.result()
    return expect(timed(s.wait, ["never"], SOON), TIMED_OUT)


@check(feature="append")
def prefix_extended(p):
    tcp = p.client()
    s = dist.PrefixStore(p.key("p"), tcp)
    s.append("ap", "x")
    s.append("ap", "y")
    s.multi_set(["a", "b"], ["1", "2"])
    seen = [show(s.get("ap")), [show(v) for v in s.multi_get(["b", "a"])], s.check(["a", "b"]),
            s.check(["a", "zz"]), show(tcp.get(p.key("p") + "/ap"))]
    return expect(seen, ["xy", ["2", "1"], True, False, "xy"])


@check(feature="barrier")
def prefix_barrier(p):
    def work():
        dist.PrefixStore(p.key("p"), p.client()).barrier("b", 3, PATIENCE)

    threads = [Thread(work) for _ in range(3)]
    for thread in threads:
        thread.result()
    return expect(show(p.client().get(p.key("p") + "/b/num_members")), "3")


@check(feature="list_keys")
def prefix_list_keys(p):
    s = dist.PrefixStore(p.key("p"), p.client())
    s.set("a", "1")
    s.set("b/c", "1")
    return expect(sorted(s.list_keys()), ["a", "b/c"])


@check(feature="libuv")
def prefix_queue(p):
    tcp = p.client()
    s = dist.PrefixStore(p.key("p"), tcp)
    s.queue_push("q", "x")
    return expect([tcp.queue_len(p.key("p") + "/q"), show(s.queue_pop("q"))], [1, "x"])


@check(alone=True)
def world_size_counts(p):
    """Clients with a world size announce themselves in a key that users cannot reach."""
    before = p.client().num_keys()
    p.client(world_size=4)
    return expect(p.client().num_keys() - before <= 1, True)


@check()
def same_connection_after_errors(p):
    """A client that has had every kind of refusal goes on as before."""
    s = p.client()
    seen = [timed(s.wait, [p.key("no")], SOON), s.delete_key(p.key("no")),
            show(s.compare_set(p.key("no"), "x", "y")), s.add(p.key("n"), 1),
            show(s.get(p.key("n")))]
    return expect(seen, [TIMED_OUT, False, "x", 1, "1"])


def has(feature, options):
    if feature is None:
        return True
    if feature == "libuv":
        return hasattr(dist.TCPStore, "queue_push") and options.own != "legacy"
    return hasattr(dist.TCPStore, feature)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--own", choices=("libuv", "legacy"))
    parser.add_argument("--tag", default="t")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    peers = Peers(options)
    for function, feature, fixed, alone in CHECKS:
        name = function.__name__
        if options.only and name not in options.only.split(","):
            continue
        if not has(feature, options) or (alone and not options.alone):
            continue
        # A defect can block a client for ever, and with it this process.
        if fixed and options.own:
            continue
        peers.name = name
        line = {"name": name, "fixed": fixed}
        try:
            line["seen"] = function(peers)
            line["ok"] = True
            line["detail"] = ""
        except Exception:  # one failed check is not the end of the others
            line["seen"] = None
            line["ok"] = False
            line["detail"] = traceback.format_exc(limit=-4)
        print(json.dumps(line), flush=True)
    print(json.dumps({"name": "torch", "version": torch.__version__, "end": True}), flush=True)
    # Threads that are stuck in a call must not hold up the end.
    os._exit(0)


main()
