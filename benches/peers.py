"""Measures handovers, requests and memory with `--peers`, beside the same candidates without, on one
kind of store: a file, a blob on Azurite, or a Lease on a kube-apiserver.
"""
import contextlib, functools, json, random, re, socket, statistics, subprocess, tempfile, time
from concurrent.futures import ThreadPoolExecutor

from control_plane import control_plane
from locks import lock_handovers, rows
from processes import MIB, TENURE, ask, azurite, create_lock, free_port, heading, leads, now, on_azurite, resident
from processes import row, tenure, until

STANDBYS = 10
ABREAST = 2  # elections whose leaders hand over
KILLED_ABREAST = 5  # elections whose leaders are killed
PAUSE = 0.001  # seconds between two rounds of requests
HOLD_OFF = 4.0  # seconds; longer than the longest read interval, 1.5 times retry-period
LEASE = 15.0  # seconds, the default lease-duration
WAYS = "SIGTERM", "step-down", "transfer"


def with_peers(port):
    return "--peers", "on", "--peer-address", f"127.0.0.1:{port}"


class Asker:
    """Sends requests to one candidate over a persistent connection, at a small part of what http.client costs."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port), 5)

    def ask(self):
        """Sends a request."""
        self.connection.sendall(b"GET /leader HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")

    def leads(self):
        """Returns whether the candidate reports active, by the answer to the request."""
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"\n"):
            answer += self.connection.recv(4096) or b"\r\n\r\n"
        return answer.startswith(b"HTTP/1.1 200 ")


class Election:
    """Candidates of one election, each with an admin listener, all with peers or all without."""

    def __init__(self, stack, store, name, peers):
        self.stack, self.store, self.name, self.peers = stack, store(name), name, peers
        self.home = stack.enter_context(tempfile.TemporaryDirectory())
        self.ports, self.processes = [], []

    def admin(self, n):
        return f"unix:{self.home}/{n}.sock"

    def run(self, n):
        port = self.ports[n]
        more = with_peers(port) if self.peers else ()
        return self.stack.enter_context(tenure(port, self.store, "--election", self.name, "--admin", self.admin(n),
                                               *more, identity=f"bench-{n}"))

    def add(self, count):
        for n in range(len(self.ports), len(self.ports) + count):
            self.ports.append(free_port())
            self.processes.append(self.run(n))

    def restart(self, n):
        self.processes[n].kill()
        self.processes[n].wait()
        self.processes[n] = self.run(n)

    def status(self, n):
        return json.loads(ask(self.ports[n], "/status")[1] or b"{}")

    def settled(self):
        """Returns the leader's index alone, once all others are standbys and, with peers, connected."""
        documents = [self.status(n) for n in range(len(self.ports))]
        states = [str(it.get("state")) for it in documents]
        if sorted(states) != ["leader"] + ["standby"] * (len(states) - 1):
            return None
        first = states.index("leader")
        connected = sum(it["connected"] for it in documents[first].get("candidates") or ())
        return (first,) if not self.peers or connected == len(states) else None

    def leader(self):
        return until(self.settled, pause=0.1)[0]

    def requests(self, n, op="", outcome=""):
        """Returns how many requests a candidate has sent to the store since its start."""
        metrics = ask(self.ports[n], "/metrics")[1].decode()
        found = re.findall(rf'store_requests_total{{.*op="{op or ".*"}",outcome="{outcome or ".*"}"}} (\d+)', metrics)
        return sum(map(int, found))

    def hand_over(self, how):
        """Returns the time from SIGTERM, or from the last active response of the leader, to the first of
        the next, in seconds; whether the next is the one that was named; and how many bids were refused."""
        first = self.leader()
        time.sleep(random.uniform(0.3, 2.3))  # at a random point of the periods of all
        others = [n for n in range(len(self.ports)) if n != first]
        chosen = random.choice(others)
        refused = lambda: sum(self.requests(n, "acquire", "refused") for n in others)
        before = refused()
        askers = [(n, Asker(self.ports[n])) for n in others]
        command = None
        if how == "SIGTERM":
            self.processes[first].terminate()
        else:
            askers.append((first, Asker(self.ports[first])))
            named = ("--to", f"bench-{chosen}") if how == "transfer" else ()
            command = subprocess.Popen([TENURE, how, *named, "--hold-off", f"{HOLD_OFF:.0f}s", "--admin",
                                        self.admin(first)], stdout=subprocess.DEVNULL)
        last, next_one = now(), None
        bound = last + 60
        while next_one is None:
            if now() > bound:
                raise SystemExit(f"{how}: nobody leads")
            sent = now()
            for _, asker in askers:
                asker.ask()
            leading = [n for n, asker in askers if asker.leads()]
            if first in leading:
                last = sent
            elif leading:
                next_one, seen = leading[0], now()
            # The candidates have more urgent work.
            time.sleep(PAUSE)
        if command and command.wait() != 0:
            raise SystemExit(f"{how} was refused")
        time.sleep(0.5)  # the others have bid, if they do
        bids = refused() - before
        if how == "SIGTERM":
            self.restart(first)
        return seen - last, next_one == chosen, bids

    def killed(self):
        """Kills the leader; returns how long after the end of its lease another leads, in seconds."""
        first = self.leader()
        time.sleep(random.uniform(2, 4))
        age = until(lambda: self.status(first).get("store"))["last_success_ms_ago"] / 1000
        began = now()
        self.processes[first].kill()
        others = [port for n, port in enumerate(self.ports) if n != first]
        until(lambda: any(map(leads, others)), pause=0.01)
        took = now() - began
        self.restart(first)
        return took - (LEASE - age)


def shared(question, elections, count):
    """Asks each election its share of `count` times, all at once; returns all answers."""
    shares = [(it, len(range(n, count, len(elections)))) for n, it in enumerate(elections)]
    with ThreadPoolExecutor(len(elections)) as pool:
        answers = pool.map(lambda it: [question(it[0]) for _ in range(it[1])], shares)
        return [it for share in answers for it in share]


def with_standbys(store, peers, count):
    """Measures leaders with ten standbys each, in handovers and in between."""
    with contextlib.ExitStack() as stack:
        elections = [Election(stack, store, f"many-{n}{peers}", peers) for n in range(min(ABREAST, count))]
        for it in elections:
            it.add(1)
        for it in elections:
            it.leader()
        time.sleep(10)
        alone = [resident(it.processes[0].pid) for it in elections]
        for it in elections:
            it.add(STANDBYS)
        for it in elections:
            it.leader()
        time.sleep(5)
        counts = lambda: [[it.requests(n) for n in range(STANDBYS + 1)] for it in elections]
        seconds, before = 2.4 * count, counts()
        time.sleep(seconds)
        rates = [[60 * (b - a) / seconds for a, b in zip(*both)] for both in zip(before, counts())]
        grown = statistics.median(resident(it.processes[0].pid) - size for it, size in zip(elections, alone))
        handovers = {how: shared(lambda it: it.hand_over(how), elections, count) for how in WAYS}
    return handovers, statistics.mean(it[0] for it in rates), statistics.mean(n for it in rates for n in it[1:]), grown / MIB


def kills(store, peers, count):
    with contextlib.ExitStack() as stack:
        elections = [Election(stack, store, f"pair-{n}{peers}", peers) for n in range(min(KILLED_ABREAST, count))]
        for it in elections:
            it.add(2)
        return shared(Election.killed, elections, count)


def commands(store, peers, count):
    election = f"lock{peers}"

    def contend():
        port = free_port()
        more = with_peers(port) if peers else ()
        return (TENURE, "exec", "--once", "--election", election, "--identity", f"bench-{port}", "--log-level", "error",
                "--listen", f"127.0.0.1:{port}", "--store", *store(election), *more, "--")

    return lock_handovers(contend, count, 1.0)


def measured(store, peers, count):
    """Measures the handovers, and then two at once whose candidates wait most of the time."""
    handovers = with_standbys(store, peers, count)
    with ThreadPoolExecutor(2) as pool:
        parts = [pool.submit(it, store, peers, count) for it in (kills, commands)]
        return [handovers, *(it.result() for it in parts)]


@contextlib.contextmanager
def on_file():
    # In memory, as the default, /run/tenure, is: how long a write to the machine's disk takes is not shown.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        yield lambda election: (f"file://{home}",)


@contextlib.contextmanager
def on_blob():
    with azurite() as port:
        def store(election):
            create_lock(port, [election])
            return on_azurite(port)
        yield functools.cache(store)


@contextlib.contextmanager
def on_lease():
    with control_plane() as plane:
        yield lambda election: (f"kubernetes:default/{election}", "--kube-api", plane.url, "--kube-token-file",
                                plane.token_file, "--kube-ca-file", plane.ca_file)


STORES = {"file": on_file, "azurite": on_blob, "lease": on_lease}


def peers(name, count):
    heading("without peers")
    with STORES[name]() as store:
        # Without peers a handover takes a second or more, and a few show it.
        us, them = (measured(store, *how) for how in (("-peers", count), ("", max(1, count // 5))))
    (handovers, leader, standby, grown), lags, locks = us
    (others, their_leader, their_standby, their_grown), their_lags, their_locks = them
    for how in WAYS:
        gaps = [[it[0] for it in answers[how]] for answers in (handovers, others)]
        rows(f"{how} to the next of ten standbys", *gaps)
    row("  transfers that went to the one named", f"{sum(it[1] for it in handovers['transfer'])} of {count}")
    bids = [statistics.mean(it[2] for answers in them.values() for it in answers) for them in (handovers, others)]
    row("  refused bids of a handover, mean", *(f"{it:.2f}" for it in bids))
    rows("exec --once: SIGTERM to the next command", locks, their_locks)
    rows("kill -9: lag after the lease's end", lags, their_lags)
    row("requests of a standby a minute", f"{standby:.1f}", f"{their_standby:.1f}", f"{standby / their_standby:.2f}")
    row("requests of a leader a minute", f"{leader:.1f}", f"{their_leader:.1f}", f"{leader / their_leader:.2f}")
    row("memory of a leader for ten standbys", f"{grown:+.2f} MiB", f"{their_grown:+.2f} MiB")
