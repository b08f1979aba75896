"""Measures a leader and a standby without peers on each kind of store, all at the same time: memory, requests,
and handovers; on etcd beside `etcdctl lock`, on Consul beside `consul lock`.
"""
import contextlib, os, shutil, statistics, subprocess, tempfile, time
from concurrent.futures import ThreadPoolExecutor

import peers
from locks import consul, consul_lock, etcd, etcd_lock, lock_handovers, milliseconds, p99, rows
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
    with tempfile.TemporaryDirectory() as home:
        port, configuration = free_port(), f"{home}/zoo.cfg"
        with open(configuration, "w") as file:
            file.write(f"dataDir={home}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=2000\n"
                       "admin.enableServer=false\nmaxClientCnxns=0\n")
        with running("java", "-cp", f"{tool('zookeeper')}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                     configuration):
            until(lambda: connects(port))
            yield lambda election: (f"zookeeper://127.0.0.1:{port}/bench",)


STORES = {**peers.STORES, "etcd": on_etcd, "postgres": on_postgres, "s3": on_s3, "consul": on_consul,
          "redis": on_redis, "zookeeper": on_zookeeper}
NAMES = {"file": "file:", "azurite": "Azurite", "lease": "a Lease", "etcd": "etcd", "postgres": "PostgreSQL", "s3": "S3",
         "consul": "Consul", "redis": "Redis", "zookeeper": "ZooKeeper"}


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


def stores(count):
    heading("etcdctl lock")
    # Side by side, since all of them wait most of the time.
    with ThreadPoolExecutor(len(STORES)) as pool:
        for shown in pool.map(lambda kind: measured(kind, count), STORES):
            for it in shown:
                row(*it)
    with etcd() as client:
        store = lambda election: (client.replace("http://", "etcd://") + "/bench",)
        command, environment = etcd_lock(client, "lock")
        rows("etcd: exec --once, SIGTERM to the next command", peers.commands(store, "", count),
             lock_handovers(lambda: command, count, 0.5, environment))
    with consul() as address:
        store = lambda election: (f"consul://{address}/bench",)
        command, environment = consul_lock(address, "lock")
        rows("consul: exec --once, SIGTERM to the next command", peers.commands(store, "", count),
             lock_handovers(lambda: command, count, 0.5, environment))
