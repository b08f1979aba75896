"""Measures candidates on a Kubernetes Lease when the leader is terminated, killed or stopped, or the API
server hangs; compared with candidates of k8s.io/client-go with the same timings, on the same API
server, at the same time. Pods, Services and routes are not involved.
"""
import contextlib, random, signal, socket, statistics, time
from concurrent.futures import ThreadPoolExecutor

from control_plane import control_plane
from processes import MIB, TENURE, ask, free_port, heading, leads, now, resident, row, running, tenure, tool, until

HANG = 60.0  # seconds


def ours(plane, lease, port):
    return tenure(port, (f"kubernetes:default/{lease}", "--kube-api", plane.url, "--kube-token-file",
                         plane.token_file, "--kube-ca-file", plane.ca_file), identity=f"bench-{port}")


def peer(plane, lease, port, lost="exit"):
    """Starts a client-go candidate as in the library's example: it releases on SIGTERM and exits when
    it has lost the lease, or continues, as sidecars do that only respond to requests."""
    return running(tool("clientgo"), "-api", plane.url, "-token-file", plane.token_file, "-ca-file", plane.ca_file,
                   "-name", lease, "-identity", f"bench-{port}", "-listen", f"127.0.0.1:{port}",
                   "-release-on-cancel", "-lost", lost)


def peer_that_goes_on(plane, lease, port):
    return peer(plane, lease, port, "again")


class Pair:
    """Two candidates of one kind on a Lease, of which one leads and the other has seen that."""

    def __init__(self, stack, plane, kind, lease):
        self.start = lambda: (port := free_port(), stack.enter_context(kind(plane, lease, port)))
        self.leader = self.start()
        until(lambda: leads(self.leader[0]))
        self.other = self.start()
        time.sleep(5)

    def ended_by(self, how):
        """Ends the leader by a signal; returns the time until the other leads. A new candidate joins."""
        time.sleep(random.uniform(2, 4))  # at a random point of the periods of both
        began = now()
        self.leader[1].send_signal(how)
        until(lambda: leads(self.other[0]))
        took = now() - began
        self.leader[1].kill()
        self.leader, self.other = self.other, self.start()
        time.sleep(3)
        return took

    def answers_leader_after_a_stop(self):
        """Stops the leader for 25 s with a request queued; returns whether the response is "leader"."""
        port, process = self.leader
        process.send_signal(signal.SIGSTOP)
        time.sleep(24.5)
        with socket.create_connection(("127.0.0.1", port), 5) as queued:
            queued.sendall(b"GET /leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            time.sleep(0.5)
            process.send_signal(signal.SIGCONT)
            try:
                return queued.recv(64).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

    def answers_leader_for(self, began):
        """Returns how long after `began` the leader still reported active while the API server hangs."""
        last = 0.0
        while now() < began + HANG:
            if ask(self.leader[0])[0] == 200:
                last = now() - began
            time.sleep(0.05)
        return last


KINDS = {"tenure": ours, "client-go": peer, "client-go that goes on": peer_that_goes_on}


def trials(plane, name, kinds, count, question):
    """Runs `question` on `count` pairs of each kind concurrently; returns the results."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(kinds) * count) as pool:
        names = [(kind, f"{name}-{kind}-{n}".replace(" ", "-")) for kind in kinds for n in range(count)]
        pairs = list(pool.map(lambda it: (it[0], Pair(stack, plane, KINDS[it[0]], it[1])), names))
        asked = [(kind, pool.submit(question, pair)) for kind, pair in pairs]
        results = {kind: [] for kind in kinds}
        for kind, answer in asked:
            results[kind].append(answer.result())
        return results


def seconds(times):
    return f"{statistics.median(times):.2f} s"


def handovers(plane, name, how, rounds, abreast):
    results = trials(plane, name.lower().replace(" ", ""), ("tenure", "client-go"), abreast,
                     lambda pair: [pair.ended_by(how) for _ in range(rounds)])
    us, them = ([took for pair in results[kind] for took in pair] for kind in ("tenure", "client-go"))
    row(f"{name} to the next leader, median of {len(us)}", seconds(us), seconds(them),
        f"{statistics.median(us) / statistics.median(them):.2f}")
    row("  worst", f"{max(us):.2f} s", f"{max(them):.2f} s")


def footprint(plane):
    with contextlib.ExitStack() as stack:
        ports = free_port(), free_port()
        us, them = (stack.enter_context(kind(plane, f"footprint-{port}", port)) for kind, port in zip((ours, peer), ports))
        until(lambda: all(map(leads, ports)))
        time.sleep(60)
        sizes = resident(us.pid) / MIB, resident(them.pid) / MIB
    row("resident memory of a leader after a minute (goal 8 MiB)", f"{sizes[0]:.1f} MiB", f"{sizes[1]:.1f} MiB",
        f"{sizes[0] / sizes[1]:.2f}")
    binaries = TENURE.stat().st_size / 1e6, tool("clientgo").stat().st_size / 1e6
    row("binary", f"{binaries[0]:.1f} MB", f"{binaries[1]:.1f} MB", f"{binaries[0] / binaries[1]:.2f}")


def leases(count):
    """Runs `count` trials of each, a few in parallel."""
    abreast = min(4, count)
    rounds = -(-count // abreast)
    heading("client-go")
    with control_plane() as plane:
        footprint(plane)
        handovers(plane, "SIGTERM", signal.SIGTERM, rounds, abreast)
        handovers(plane, "kill -9", signal.SIGKILL, rounds, abreast)
        wrong = trials(plane, "stop", KINDS, count, Pair.answers_leader_after_a_stop)
        wrong = [f"{sum(wrong[kind])} of {count}" for kind in KINDS]
        row("stopped for 25 s: questions answered \"leader\"", wrong[0], wrong[1])
        row("  of one that goes on when it has lost", "", wrong[2])
        hanging = lambda pair: pair.answers_leader_for(began)
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(9) as pool:
            pairs = {kind: Pair(stack, plane, make, f"hang-{number}")
                     for number, (kind, make) in enumerate(KINDS.items())}
            with plane.hung():
                began = now()
                held = list(pool.map(hanging, pairs.values()))
    row(f"API server hung for {HANG:.0f} s: answered \"leader\" for", f"{held[0]:.1f} s", f"{held[1]:.1f} s",
        f"{held[0] / held[1]:.2f}")
    row("  one that goes on when it has lost", "", f"{held[2]:.1f} s")
