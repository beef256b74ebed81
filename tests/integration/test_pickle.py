"""Records between our codec and CPython, with stand-ins for torch's classes.

What CPython pickles in every protocol and dialect we read; what we write CPython unpickles to the
same content. Real torch has its say in tests/peers.
"""

import base64
import pickle
import random
import unittest

import harness
import records


class Codec(unittest.TestCase):
    def setUp(self):
        self.classes = records.stand_ins()

    def check(self, states, protocol=None):
        """The states through our reader and writer: the same content, for us and for CPython.
        Returns our answers and what CPython loaded."""
        answers = records.tool([pickle.dumps(state, protocol).hex() for state in states])
        loaded = []
        for state, answer in zip(states, answers):
            wanted = records.content(state)
            self.assertEqual(records.content_of(answer), wanted)
            loaded.append(pickle.loads(bytes.fromhex(answer["hex"])))
            self.assertIs(type(loaded[-1]), type(state))
            self.assertEqual(records.content(loaded[-1]), wanted)
        return answers, loaded

    def test_random_states(self):
        rng = random.Random(1907)
        for dialect in records.DIALECTS:
            for protocol in (3, 4, 5):
                with self.subTest(dialect=dialect, protocol=protocol):
                    states = [records.random_state(rng, self.classes, dialect)
                              for _ in range(100)]
                    answers, _ = self.check(states, protocol)
                    for state, answer in zip(states, answers):
                        if state.last_heartbeats:
                            self.assertEqual(answer["dialect"], dialect)

    def test_many_nodes(self):
        """Several groups, several frames, a memo beyond 255; and ours is the shorter one."""
        rng = random.Random(77)
        for dialect in records.DIALECTS:
            for count in (90, 1001, 2100):
                with self.subTest(dialect=dialect, count=count):
                    state = records.random_state(rng, self.classes, dialect, count)
                    (answer,), _ = self.check([state])
                    self.assertLess(len(answer["hex"]) // 2, 0.97 * len(pickle.dumps(state)))

    def test_pure_python_pickler(self):
        rng = random.Random(78)
        state = records.random_state(rng, self.classes, "D4", 1001)
        raw = pickle._dumps(state, 4)
        (answer,) = records.tool([raw.hex()])
        self.assertEqual(records.content_of(answer), records.content(state))
        self.assertEqual(records.content(pickle._loads(bytes.fromhex(answer["hex"]))),
                         records.content(state))

    def test_unknown_attributes(self):
        rng = random.Random(79)
        values = {
            "none": None, "flag": True, "big": -(1 << 200), "text": "ü" * 300, "raw": b"\0" * 300,
            "float": float("inf"), "list": list(range(-3000, 3000)), "words": ["same"] * 20,
            "nested": {"k": [1, (2,), {3, "x"}, {}], (1, 2): {"y": (1, 2, 3, 4)}},
            "empty": ([], (), set(), {}),
        }
        for dialect in records.DIALECTS:
            for protocol in (3, 4, 5):
                with self.subTest(dialect=dialect, protocol=protocol):
                    state = records.random_state(rng, self.classes, dialect, 5)
                    state.__dict__.update(values)
                    state.when = next(iter(state.last_heartbeats.values()), None)
                    state.nodes = set(state.last_heartbeats)
                    _, (again,) = self.check([state], protocol)
                    self.assertEqual({name: again.__dict__[name] for name in values}, values)
                    self.assertEqual(again.when, state.when)
                    self.assertEqual(again.nodes, state.nodes)

    def test_seal(self):
        """Python carries our seal along, and we find it again."""
        state = records.random_state(random.Random(80), self.classes, "D4", 3)
        raw = pickle.dumps(state).hex()
        (sealed,) = records.tool([raw], "7", "3")
        theirs = pickle.loads(bytes.fromhex(sealed["hex"]))
        self.assertEqual(theirs.muster_seal, (7, 3))
        theirs.round += 1
        (again,) = records.tool([pickle.dumps(theirs).hex()])
        self.assertEqual(again["sealed"], [7, 3])
        self.assertEqual(again["round"], state.round + 1)
        self.assertEqual(again["extra_size"], 0)

    def test_other_objects(self):
        """Valid pickles of anything else are refused, and nothing in them happens."""
        values = (None, 5, "x", {}, [1], self.classes.node("D4", "a", 1, 2), ValueError("x"),
                  print, object(), 2.5, {1, 2}, frozenset([1]), bytearray(b"x"))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            answers = records.tool([pickle.dumps(value, protocol).hex() for value in values])
            for value, answer in zip(values, answers):
                self.assertEqual(answer.get("error"), "EPROTO", (protocol, value))
                self.assertNotEqual(answer["text"], "")

    def test_base64(self):
        """As base64.b64decode, on text that is nearly right."""
        rng = random.Random(81)
        texts = []
        for _ in range(3000):
            text = bytearray(base64.b64encode(rng.randbytes(rng.randrange(12))))
            for _ in range(rng.randrange(4)):
                text.insert(rng.randrange(len(text) + 1), rng.choice(b"=A/+-_ \t\xff~z9="))
            texts.append(bytes(text))
        answers = records.tool([b"=" + text for text in texts])
        for text, answer in zip(texts, answers):
            try:
                wanted = {"hex": base64.b64decode(text).hex()}
            except ValueError:
                wanted = {"error": "EPROTO", "text": "base64"}
            self.assertEqual(answer, wanted, text)


if __name__ == "__main__":
    harness.main()
