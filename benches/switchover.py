"""Measures how long there is no leader when Patroni hands over by `patronictl switchover`.

Three nodes with PostgreSQL, Patroni's default timings (ttl 30, loop_wait 10), one etcd; all on
loopback. PostgreSQL does not run as root: under root the nodes are Debian's user postgres.

Tenure is not measured here. A switchover stops one PostgreSQL and promotes another,
which no election does; the figure is an upper bound for what Patroni's election costs.
"""
import contextlib, json, os, random, shutil, statistics, subprocess, sys, tempfile, time

from locks import etcd, milliseconds
from processes import ROOT, as_postgres, ask, free_port, now, postgres, row, until

NODES = "abc"
PAUSE = 0.01  # seconds between two rounds of requests: the resolution


def python():
    """Returns how to run Debian's Python, which every user may execute, and an environment with Patroni."""
    home = ROOT / "target/patroni"
    if not home.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-qqq", "--target", home, "patroni[etcd3]==4.1.5",
                        "psycopg[binary]==3.3.9"], check=True)
    return "/usr/bin/python3", {**os.environ, "PYTHONPATH": str(home)}


def settings(home, name, port, etcd_address):
    database = free_port()
    login = {"superuser": {"username": "postgres", "password": "bench"},
             "replication": {"username": "replicator", "password": "bench"}}
    return {
        "scope": "bench", "name": name, "etcd3": {"host": etcd_address},
        "restapi": {"listen": f"127.0.0.1:{port}", "connect_address": f"127.0.0.1:{port}"},
        "bootstrap": {"dcs": {}, "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}]},
        "postgresql": {
            "listen": f"127.0.0.1:{database}", "connect_address": f"127.0.0.1:{database}",
            "data_dir": f"{home}/{name}", "bin_dir": str(postgres()), "pgpass": f"{home}/{name}.pgpass",
            "authentication": login,
            "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust",
                       "host replication all 127.0.0.1/32 trust"],
            "parameters": {"unix_socket_directories": str(home)}},
    }


@contextlib.contextmanager
def node(configuration):
    program, environment = python()
    process = subprocess.Popen([*as_postgres(), program, "-m", "patroni", configuration], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=environment)
    try:
        yield
    finally:
        process.terminate()  # if killed, it would leave its PostgreSQL running
        process.wait(60)


def settled(ports):
    """Returns the index of the leader, once all others follow it."""
    roles = [ask(port, "/primary")[0] == 200 for port in ports]
    well = sum(roles) == 1 and all(role or ask(port, "/replica")[0] == 200 for role, port in zip(roles, ports))
    return roles.index(True) if well else None


def one_switchover(configuration, ports):
    until(lambda: settled(ports) is not None, bound=180, pause=0.2)
    time.sleep(random.uniform(0, 10))  # at a random point of loop_wait
    first = settled(ports)
    second = random.choice([n for n in range(len(ports)) if n != first])
    began = now()
    program, environment = python()
    command = subprocess.Popen([program, "-c", "from patroni.ctl import ctl; ctl()", "-c", configuration, "switchover",
                                "--leader", NODES[first], "--candidate", NODES[second], "--force"],
                               stdout=subprocess.DEVNULL, env=environment)
    last = began
    while not ask(ports[second], "/primary")[0] == 200:
        if now() > began + 120:
            raise SystemExit("nobody leads")
        sent = now()
        if ask(ports[first], "/primary")[0] == 200:
            last = sent
        time.sleep(PAUSE)
    seen = now()
    command.wait()
    return seen - last, seen - began, now() - began


def switchover(count):
    home = pathlib.Path(tempfile.mkdtemp())
    try:
        with etcd() as client, contextlib.ExitStack() as stack:
            ports = [free_port() for _ in NODES]
            for name, port in zip(NODES, ports):
                configuration = home / f"{name}.json"
                configuration.write_text(json.dumps(settings(home, name, port, client.removeprefix("http://"))))
            home.chmod(0o755)
            if os.geteuid() == 0:
                shutil.chown(home, "postgres")
            for name in NODES:
                stack.enter_context(node(home / f"{name}.json"))
            results = [one_switchover(home / "a.json", ports) for _ in range(count)]
    finally:
        shutil.rmtree(home)
    print(f"\n{'':<60} {'patroni':>18} {'worst':>18}")
    for what, times in zip(("patronictl switchover: nobody leads", "  from the command to the next leader",
                            "  the command itself"), zip(*results)):
        row(f"{what}, median of {count}", milliseconds(statistics.median(times)), milliseconds(max(times)))
