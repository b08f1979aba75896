"""Measures how long a lock is free when its holder exits: `tenure exec --once`, compared with
`etcdctl lock` in the same run.
"""
import contextlib, json, os, random, shutil, signal, statistics, subprocess, tempfile, time
from concurrent.futures import ThreadPoolExecutor

from processes import ROOT, TENURE, ask, connects, free_port, heading, now, row, running, tool, until

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


@contextlib.contextmanager
def consul():
    api, rpc, gossip = (free_port() for _ in range(3))
    with tempfile.TemporaryDirectory() as home:
        with open(f"{home}/bench.json", "w") as settings:
            json.dump({"node_name": "bench", "data_dir": f"{home}/data", "server": True, "bootstrap_expect": 1,
                       "bind_addr": "127.0.0.1", "log_level": "error", "disable_update_check": True,
                       "ports": {"http": api, "server": rpc, "serf_lan": gossip, "serf_wan": -1, "dns": -1, "grpc": -1,
                                 "grpc_tls": -1}}, settings)
        with running(tool("consul"), "agent", "-config-file", f"{home}/bench.json"):
            # In the catalog, sessions can be created.
            until(lambda: ask(api, "/v1/catalog/node/bench")[1].startswith(b"{"))
            yield f"127.0.0.1:{api}"


@contextlib.contextmanager
def zookeeper():
    with tempfile.TemporaryDirectory() as home:
        port, configuration = free_port(), f"{home}/zoo.cfg"
        with open(configuration, "w") as file:
            file.write(f"dataDir={home}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=2000\n"
                       "admin.enableServer=false\nmaxClientCnxns=0\n")
        with running("java", "-cp", f"{tool('zookeeper')}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                     configuration):
            until(lambda: connects(port))
            yield f"127.0.0.1:{port}"


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


def lock_handovers(contend, count, settle, environment=None):
    """Measures the time from SIGTERM to one holder's command to the start of the next one's, in seconds;
    `contend` returns the command line of each new waiter. At the end the holder and the waiter are killed,
    and the lock expires."""
    took = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        holder = Waiter(stack, contend(), environment)
        held, _ = holder.started()
        stack.callback(lambda: end(held))
        waiter = Waiter(stack, contend(), environment)
        for _ in range(count):
            time.sleep(settle + random.uniform(0, 2))
            next_start = pool.submit(waiter.started)
            began = now()
            os.kill(held, signal.SIGTERM)
            held, at = next_start.result()
            took.append(at - began)
            holder.process.wait()
            holder, waiter = waiter, Waiter(stack, contend(), environment)
    return took


def end(held):
    with contextlib.suppress(ProcessLookupError):
        os.kill(held, signal.SIGKILL)


def etcd_lock(client, name):
    return ("etcdctl", "lock", name, "--"), {**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": client}


def consul_lock(address, name):
    return (tool("consul"), "lock", f"-http-addr=http://{address}", "-shell=false", name), None


def curator_lock(servers, path):
    home = ROOT / "target/bench-curator"
    if not (home / "LatchLock.class").exists():
        source = ROOT / "benches/curator"
        subprocess.run(["mvn", "--quiet", "--batch-mode", "--strict-checksums", "--file", source / "pom.xml",
                        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
                        f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"], check=True)
        subprocess.run(["javac", "-cp", f"{home / 'lib'}/*", "-d", home, source / "LatchLock.java"], check=True)
    return ("java", "-cp", f"{home}:{home / 'lib'}/*", "LatchLock", servers, path), None


def tenure_lock(home, election):
    return TENURE, "exec", "--once", "--election", election, "--log-level", "error", "--store", f"file://{home}", "--"


def p99(times):
    return sorted(times)[int(len(times) * 0.99)]


def milliseconds(seconds):
    return f"{1000 * seconds:,.0f} ms"


def rows(what, ours, peers):
    for name, pick in ((f"{what}, median of {len(ours)}", statistics.median), ("  p99", p99)):
        row(name, milliseconds(pick(ours)), milliseconds(pick(peers)), f"{pick(ours) / pick(peers):.2f}")


def lock(count):
    heading("etcdctl lock")
    with etcd() as client, tempfile.TemporaryDirectory() as home:
        command, environment = etcd_lock(client, "lock")
        rows("exec --once: SIGTERM to the next command",
             lock_handovers(lambda: tenure_lock(home, "lock"), count, 0.5),
             lock_handovers(lambda: command, count, 0.5, environment))
        # Another lock: the first is still held by a process that was killed.
        ours, costs = tenure_lock(home, "cost"), []
        (command, environment), peer_costs = etcd_lock(client, "cost"), []
        for _ in range(20):  # alternating, so that load on the machine affects both
            for asked, more, times in ((ours, None, costs), (command, environment, peer_costs)):
                began = now()
                subprocess.run([*asked, "true"], env=more, check=True, stdout=subprocess.DEVNULL)
                times.append(now() - began)
        rows("exec --once -- true, the lock free", costs, peer_costs)
