"""Measures how long there is no leader in a graceful handover: by step-down, by transfer, and when the
holder of a lock exits; compared with `etcdctl lock` in the same run. For leaders that are killed see
`measure.py handover`.
"""
import contextlib, http.client, json, os, random, shutil, signal, statistics, subprocess, tempfile, time
from concurrent.futures import ThreadPoolExecutor

from processes import TENURE, ask, azurite, connects, create_lock, free_port, heading, leads, now
from processes import on_azurite, row, running, tenure, until

CANDIDATES = 3
HOLD_OFF = 4.0  # seconds; longer than the longest read interval, 1.5 times retry-period
PAUSE = 0.004  # seconds between two rounds of requests: the resolution
ABREAST = 3
HELD = ("sh", "-c", "echo $$; exec sleep 600")  # the command under a lock: prints its process id


@contextlib.contextmanager
def etcd():
    if not shutil.which("etcd") or not shutil.which("etcdctl"):
        raise SystemExit("etcd is missing: install Debian's packages etcd-server and etcd-client")
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory() as home, running(
            "etcd", "--name", "bench", "--data-dir", home, "--listen-client-urls", client, "--advertise-client-urls",
            client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
            f"bench={peer}"):
        until(lambda: ask(int(client.rsplit(":", 1)[1]), "/health")[0] == 200)
        yield client


class Asker:
    """Sends requests to one candidate over a persistent connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)

    def leads(self):
        """Returns whether the candidate reports active."""
        self.connection.request("GET", "/leader")
        answer = self.connection.getresponse()
        answer.read()
        return answer.status == 200


class Candidates:
    """Candidates of one election, each with an admin listener."""

    def __init__(self, home, store, election):
        self.admins = [f"unix:{home}/{n}.sock" for n in range(CANDIDATES)]
        self.ports = [free_port() for _ in range(CANDIDATES)]
        self.processes = [tenure(port, store, "--election", election, "--admin", admin, identity=f"bench-{n}")
                          for n, (port, admin) in enumerate(zip(self.ports, self.admins))]

    def settled(self):
        """Returns the index of the leader, once all others are standbys."""
        standing = [json.loads(ask(port, "/status")[1] or b"{}").get("state") for port in self.ports]
        if sorted(map(str, standing)) == ["leader"] + ["standby"] * (CANDIDATES - 1):
            return standing.index("leader")
        return None

    def hand_over(self, verb):
        """Returns the time from the last active response of the leader to the first of the next, the time
        from the command to that, both in seconds, and whether the next is the one that was named."""
        until(lambda: self.settled() is not None)
        time.sleep(random.uniform(0, 2))  # at a random point of the periods of all
        first = self.settled()
        chosen = random.choice([n for n in range(CANDIDATES) if n != first])
        named = ("--to", f"bench-{chosen}") if verb == "transfer" else ()
        askers = [Asker(port) for port in self.ports]
        began = now()
        command = subprocess.Popen([TENURE, verb, *named, "--hold-off", f"{HOLD_OFF:.0f}s", "--admin", self.admins[first]],
                                   stdout=subprocess.DEVNULL)
        last, next_one = began, None
        while next_one is None:
            if now() > began + 60:
                raise SystemExit(f"{verb}: nobody leads")
            for n, asker in enumerate(askers):
                sent = now()
                if asker.leads():
                    if n == first:
                        last = sent
                    else:
                        next_one, seen = n, now()
            time.sleep(PAUSE)
        if command.wait() != 0:
            raise SystemExit(f"{verb} was refused")
        time.sleep(max(0, last + HOLD_OFF + 0.1 - now()))
        return seen - last, seen - began, next_one == chosen


def handovers_of(verb, store, election, count):
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        candidates = Candidates(home, store, election)
        for process in candidates.processes:
            stack.enter_context(process)
        return [candidates.hand_over(verb) for _ in range(count)]


def handovers(verb, store, elections, count):
    shares = [len(range(n, count, len(elections))) for n in range(len(elections))]
    with ThreadPoolExecutor(len(elections)) as pool:
        results = pool.map(lambda it: handovers_of(verb, store, *it), zip(elections, shares))
        return [it for share in results for it in share]


class Waiter:
    """A process that acquires a lock to run a command under it."""

    def __init__(self, stack, command, environment):
        self.process = stack.enter_context(running(*command, *HELD, stdout=subprocess.PIPE, env=environment))

    def started(self):
        """Waits until the command runs; returns its process id, and when it started."""
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a holder ended before its command ran")
        return int(line), now()


def lock_handovers(command, count, settle, environment=None):
    """Measures the time from SIGTERM to one holder's command to the start of the next one's, in seconds.
    At the end the holder and the waiter are killed, and the lock expires."""
    took = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        holder = Waiter(stack, command, environment)
        held, _ = holder.started()
        stack.callback(lambda: end(held))
        waiter = Waiter(stack, command, environment)
        for _ in range(count):
            time.sleep(settle + random.uniform(0, 2))
            next_start = pool.submit(waiter.started)
            began = now()
            os.kill(held, signal.SIGTERM)
            held, at = next_start.result()
            took.append(at - began)
            holder.process.wait()
            holder, waiter = waiter, Waiter(stack, command, environment)
    return took


def end(held):
    with contextlib.suppress(ProcessLookupError):
        os.kill(held, signal.SIGKILL)


def etcd_lock(client, name):
    return ("etcdctl", "lock", name, "--"), {**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": client}


def tenure_lock(home, election):
    return TENURE, "exec", "--once", "--election", election, "--log-level", "error", "--store", f"file://{home}", "--"


def p99(times):
    return sorted(times)[int(len(times) * 0.99)]


def milliseconds(seconds):
    return f"{1000 * seconds:,.0f} ms"


def rows(what, ours, peers=()):
    for name, pick in ((f"{what}, median of {len(ours)}", statistics.median), ("  p99", p99)):
        if peers:
            row(name, milliseconds(pick(ours)), milliseconds(pick(peers)), f"{pick(ours) / pick(peers):.1f}")
        else:
            row(name, milliseconds(pick(ours)))


def by_verb(verb, count):
    heading("etcdctl lock")
    with etcd() as client:
        command, environment = etcd_lock(client, "lock")
        peers = lock_handovers(command, count, 0.5, environment)
    elections = [f"{verb}-{n}" for n in range(min(ABREAST, count))]
    with tempfile.TemporaryDirectory() as home:
        results = {"file:": handovers(verb, (f"file://{home}",), elections, count)}
    with azurite() as store:
        create_lock(store, elections)
        results["Azurite"] = handovers(verb, on_azurite(store), elections, count)
    for store, them in results.items():
        gaps, waits, hits = zip(*them)
        rows(f"{verb} on {store}, nobody leads", gaps, peers)
        rows("  from the command to the next leader", waits)
        if verb == "transfer":
            row("  went to the one named", f"{sum(hits)} of {count}")


def lock(count):
    heading("etcdctl lock")
    with etcd() as client, tempfile.TemporaryDirectory() as home:
        command, environment = etcd_lock(client, "lock")
        rows("exec --once: SIGTERM to the next command", lock_handovers(tenure_lock(home, "lock"), count, 0.5),
             lock_handovers(command, count, 0.5, environment))
        # Another lock: the first is still held by a process that was killed.
        ours, costs = tenure_lock(home, "cost"), []
        (command, environment), peer_costs = etcd_lock(client, "cost"), []
        for _ in range(20):  # alternating, so that load on the machine affects both
            for asked, more, times in ((ours, None, costs), (command, environment, peer_costs)):
                began = now()
                subprocess.run([*asked, "true"], env=more, check=True, stdout=subprocess.DEVNULL)
                times.append(now() - began)
        rows("exec --once -- true, the lock free", costs, peer_costs)
