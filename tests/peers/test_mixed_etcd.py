"""Groups of torch's real handlers and of `muster join` in one rendezvous at an etcd.

    test_mixed_etcd.py [--repeat N] [--jobs N] [NAME...]

--repeat runs every scenario, or those whose names contain a NAME, N times in a row and prints how
often each has passed. One etcd, started by `muster etcd`, serves all of them.

Both backends are torch 1.13's with python-etcd: `etcd-v2`, a record that all nodes change, and
`etcd`, the older protocol. The members of the older one learn of each other's deaths from their
workers, which fail without their peers; so torch's nodes are told to re-enter when one is killed.
Its time to live of 10 s is fixed.
"""

import threading

import mixed
import peer  # noqa: F401  it makes the modules of the integration tests known
import etcd_cluster
from mixed import KINDS, Scenario

VERSIONS = ("old",)
BACKENDS = ("etcd-v2", "etcd")

HOLD_S = 25  # more than two times the TTL of a member's key, and than three missed keep-alives


class EtcdScenario(Scenario):
    """A rendezvous at the etcd of this run."""

    def __init__(self, which, backend, min, max):
        super().__init__(which, "etcd", min, max)
        self.backend = backend
        self.etcd = shared_etcd()
        self.endpoint = self.etcd.endpoint

    def node(self, kind, **options):
        if self.backend == "etcd":
            options["keep_alive"] = None
        node = mixed.CLASSES[kind](self, backend=self.backend, **options)
        self.nodes.append(node)
        return node

    def start(self, kinds, **options):
        nodes = [self.node(kind, **options) for kind in kinds]
        for node in nodes:
            node.join()
        return nodes

    def workers_fail(self, nodes):
        if self.backend == "etcd":
            for node in nodes:
                if node.kind == "torch":
                    node.call("reenter")

    # --- what the etcd holds

    def document(self):
        """The state of the older protocol; None if there is none just now."""
        return self.etcd.v2.json(f"/torchelastic/p2p/run_{self.run_id}/rdzv/active_version")

    def joining_count(self, nodes):
        if self.backend == "etcd":
            return len((self.document() or {}).get("participants", ()))
        return super().joining_count(nodes)

    def check_members(self, nodes, round):
        if self.backend == "etcd-v2":
            super().check_members(nodes, round)
            return
        document = self.document()
        assert document["status"] == "final", document
        assert document["version"] == str(round), (document, round)
        assert document["participants"] == list(range(len(nodes))), document
        base = f"/torchelastic/p2p/run_{self.run_id}/rdzv/v_{round}"
        keys = sorted(f"{base}/rank_{rank}" for rank in range(len(nodes)))
        assert sorted(document["keep_alives"]) == keys, document
        alive = [key for key in self.etcd.v2.names(base) if "/rank_" in key]
        assert sorted(alive) == keys, (alive, keys)


_etcd = []
_etcd_lock = threading.Lock()


def shared_etcd():
    with _etcd_lock:
        if not _etcd:
            etcd = etcd_cluster.Etcd(enable_v2=True)
            # To torch's store a key in a directory that is not there is an error, not just absent.
            etcd.v2.make_dir("/torch/elastic/store")
            _etcd.append(etcd)
        return _etcd[0]


def stop_etcd():
    while _etcd:
        _etcd.pop().stop()


# --- the scenarios ---------------------------------------------------------------------------


def death(which, backend, first):
    """Four meet; a node of each kind is killed in turn; a late one of each kind is let in."""
    with EtcdScenario(which, backend, 2, 4) as scenario:
        mixed.death(scenario, first)


def late(which, backend, kind):
    """A late node is seen by both kinds, which stay as they are until they re-enter."""
    with EtcdScenario(which, backend, 2, 4) as scenario:
        mixed.late(scenario, kind)


def close_members(which, backend, closer):
    """The members of a round end when a node of either kind closes it."""
    with EtcdScenario(which, backend, 2, 4) as scenario:
        mixed.close_members(scenario, closer)


def close_waiting(which, backend, closer):
    """Nodes that still wait for others end, too, and no node can enter afterwards."""
    with EtcdScenario(which, backend, 5, 5) as scenario:
        mixed.close_waiting(scenario, closer)


def hold(which, backend):
    """No node is expelled while nothing happens."""
    with EtcdScenario(which, backend, 4, 4) as scenario:
        mixed.hold(scenario, HOLD_S, pause_s=0.5)


def all_scenarios():
    """(name, function, arguments): each backend, each kind."""
    for which in VERSIONS:
        for backend in BACKENDS:
            for function in (death, late, close_members, close_waiting):
                for kind in KINDS:
                    yield (f"{function.__name__}-{backend}-{kind}", function,
                           (which, backend, kind))
            yield f"hold-{backend}", hold, (which, backend)


# --- running ---------------------------------------------------------------------------------


Mixed = mixed.case(all_scenarios, VERSIONS)


if __name__ == "__main__":
    try:
        mixed.main(__doc__, all_scenarios)
    finally:
        stop_etcd()
