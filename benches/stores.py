"""Measures a leader and a standby without peers on each kind of store, all at the same time: memory, requests,
and handovers; then locks beside those of `etcdctl lock`, `consul lock` and Curator, each on one server.
Google Cloud Storage is an emulator, and MongoDB a stand-in that notifies nobody.
"""
import contextlib, json, os, shutil, socket, statistics, subprocess, tempfile, threading, time, urllib.request
from concurrent.futures import ThreadPoolExecutor

import peers
from locks import consul, consul_lock, curator_lock, etcd, etcd_lock, lock_handovers, milliseconds, p99, rows
from locks import zookeeper
from processes import MIB, as_postgres, connects, free_port, heading, postgres, resident, row, running, tool, until


@contextlib.contextmanager
def on_etcd():
    with etcd() as client:
        yield lambda election: (client.replace("http://", "etcd://") + "/bench",)


@contextlib.contextmanager
def on_consul():
    with consul() as address:
        yield lambda election: (f"consul://{address}/bench",)


@contextlib.contextmanager
def on_gcs():
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        with running(tool("fake-gcs-server"), "-backend=filesystem", f"-filesystem-root={home}", "-scheme=http",
                     "-host=127.0.0.1", f"-port={port}", "-log-level=error"):
            until(lambda: connects(port))
            bucket = json.dumps({"name": "leases"}).encode()
            urllib.request.urlopen(f"http://127.0.0.1:{port}/storage/v1/b?project=bench", bucket).close()
            os.environ["STORAGE_EMULATOR_HOST"] = f"127.0.0.1:{port}"
            yield lambda election: ("gs://leases/bench",)


@contextlib.contextmanager
def on_mongodb():
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        with running(tool("mongo-java-server"), port, f"{home}/documents"):
            until(lambda: connects(port))
            front = of_mongodb_5(port)
            yield lambda election: (f"mongodb://127.0.0.1:{front}/bench", "--mongodb-compatible")


def of_mongodb_5(server):
    """Forwards connections to mongo-java-server, whose protocol of MongoDB 4.2 MongoDB's client refuses by its
    number alone. Returns the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    named = b"\x10maxWireVersion\0"

    def forward(source, sink, old, new):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data.replace(old, new))
            sink.shutdown(socket.SHUT_WR)

    def accept():
        while True:
            client, _ = listener.accept()
            behind = socket.create_connection(("127.0.0.1", server))
            for it in (client, behind):
                it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = [named + bytes([it, 0, 0, 0]) for it in (8, 13)]
            for way in ((client, behind, named, named), (behind, client, *number)):
                threading.Thread(target=forward, args=way, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


@contextlib.contextmanager
def on_postgres():
    with tempfile.TemporaryDirectory() as home:
        if as_postgres():
            shutil.chown(home, "postgres")
        port, data = free_port(), f"{home}/data"
        subprocess.run([*as_postgres(), postgres() / "initdb", "--pgdata", data, "--username", "bench"], check=True,
                       cwd="/", stdout=subprocess.DEVNULL)
        with running(*as_postgres(), postgres() / "postgres", "-D", data, "-p", port, "-c", "unix_socket_directories=",
                     cwd="/"):
            until(lambda: connects(port))
            os.environ["PGUSER"] = "bench"
            yield lambda election: (f"postgres://127.0.0.1:{port}/postgres",)


@contextlib.contextmanager
def on_redis():
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        with running("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", home, "--save", "",
                     "--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"):
            until(lambda: connects(port))
            yield lambda election: (f"redis://127.0.0.1:{port}",)


@contextlib.contextmanager
def on_s3():
    with tempfile.TemporaryDirectory() as home:
        os.mkdir(f"{home}/leases")
        port, (name, secret) = free_port(), ("bench", "measured")
        with running(tool("versitygw"), "--access", name, "--secret", secret, "--quiet", "--keep-alive",
                     "--port", f"127.0.0.1:{port}", "posix", home):
            until(lambda: connects(port))
            os.environ |= {"AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": secret}
            yield lambda election: ("s3://leases/bench", "--s3-endpoint", f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def on_zookeeper():
    with zookeeper() as server:
        yield lambda election: (f"zookeeper://{server}/bench",)


STORES = {**peers.STORES, "etcd": on_etcd, "postgres": on_postgres, "s3": on_s3, "gcs": on_gcs,
          "consul": on_consul, "redis": on_redis, "mongodb": on_mongodb, "zookeeper": on_zookeeper}
NAMES = {"file": "file:", "azurite": "Azurite", "lease": "a Lease", "etcd": "etcd", "postgres": "PostgreSQL", "s3": "S3",
         "gcs": "GCS", "consul": "Consul", "redis": "Redis", "mongodb": "MongoDB's stand-in", "zookeeper": "ZooKeeper"}


def measured(kind, count):
    """Returns the rows of one store."""
    with STORES[kind]() as store:
        with contextlib.ExitStack() as stack:
            election = peers.Election(stack, store, "alone", False)
            election.add(2)
            leader = election.leader()
            requests = lambda: [election.requests(n) for n in (leader, 1 - leader)]
            before = requests()
            time.sleep(60)
            leading, standing_by = (after - earlier for earlier, after in zip(before, requests()))
            size = resident(election.processes[leader].pid) / MIB
            handovers = [election.hand_over("SIGTERM")[0] for _ in range(count)]
        lags = peers.kills(store, "", max(1, count // 2))
    return [(f"{NAMES[kind]} memory of a leader after a minute", f"{size:.1f} MiB"),
            ("  requests of a leader a minute", leading), ("  requests of a standby a minute", standing_by),
            (f"  SIGTERM to the next leader, median of {count}", milliseconds(statistics.median(handovers))),
            ("  p99", milliseconds(p99(handovers))),
            (f"  kill -9: lag after the lease's end, median of {len(lags)}", milliseconds(statistics.median(lags))),
            ("  worst", milliseconds(max(lags)))]


def beside(name, store, peer, count):
    """Compares the handovers of a lock with those of a peer on the same server."""
    command, environment = peer
    rows(f"{name}: exec --once, SIGTERM to the next command", peers.commands(store, "", count),
         lock_handovers(lambda: command, count, 1.0, environment))


def stores(count):
    heading("the peer")
    # Side by side, since all of them wait most of the time.
    with ThreadPoolExecutor(len(STORES)) as pool:
        for shown in pool.map(lambda kind: measured(kind, count), STORES):
            for it in shown:
                row(*it)
    with etcd() as client:
        beside("`etcdctl lock`", lambda election: (client.replace("http://", "etcd://") + "/bench",),
               etcd_lock(client, "lock"), count)
    with consul() as address:
        beside("`consul lock`", lambda election: (f"consul://{address}/bench",), consul_lock(address, "lock"),
               count)
    with zookeeper() as server:
        beside("Curator's LeaderLatch", lambda election: (f"zookeeper://{server}/bench",),
               curator_lock(server, "/lock"), count)
