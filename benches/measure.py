#!/usr/bin/env python3
"""Measures Tenure beside a peer in the same run, and prints Tenure's figure, the peer's and the ratio.

  benches/measure.py footprint   memory, CPU and size of a leader that renews against Azurite
  benches/measure.py additions   memory of leaders with an admin listener, health, hooks, the page, exec
  benches/measure.py listener    /leader at 8 and 64 connections, beside a bare axum handler
  benches/measure.py start       start to first answer, and to leader on file:
  benches/measure.py handover    SIGTERM and kill -9 on Azurite
  benches/measure.py peers-file     handovers, kill -9, requests and memory with --peers, on file:
  benches/measure.py peers-azurite  the same on Azurite
  benches/measure.py peers-lease    the same on a Lease
  benches/measure.py stores      memory, requests, SIGTERM and kill -9 on each kind of store, without peers
  benches/measure.py lock        `tenure exec --once` beside `etcdctl lock`
  benches/measure.py stopped     what a leader answers after a stop longer than its lease
  benches/measure.py leases      SIGTERM, kill -9, a stop and a hung API server on a Lease, beside client-go
  benches/measure.py lateness    how late renewals start under load, beside the same leader idle
  benches/measure.py all         all of these
  benches/measure.py build       none: only builds what they run
  benches/measure.py switchover  `patronictl switchover`, without Tenure

  --trials N   of start, handover, peers-…, stores, lock, stopped, leases and switchover [default: 20]

Builds the release profile first, unless BENCH_PROGRAM names a tenure. Needs what tests/run --tools
installs, and Debian's wrk (listener), etcd-server and etcd-client (stores, lock, switchover), redis-server, maven and
a JDK (stores) and postgresql (stores, switchover); stores, leases and peers-lease need what tests/run --all --tools builds.
"""
import argparse, contextlib, datetime, json, os, pathlib, random, re, shutil, signal, socket, statistics, subprocess
import sys, tempfile, time, venv
from concurrent.futures import ThreadPoolExecutor

import leases, locks, peers, stores
from processes import MIB, ROOT, TENURE, ask, azurite, connects, create_lock, free_port, heading, leads, now
from processes import on_azurite, resident, row, running, tenure, until
from load import hinting, load
from switchover import switchover

BARE = ROOT / "target/release/examples/bare_axum"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def python_peer():
    """Returns the Python of a virtual environment with the official client."""
    home = ROOT / "target/bench-python"
    if not (home / "bin/python").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin/pip", "install", "-q", "azure-storage-blob==12.27.1"], check=True)
    return home / "bin/python"


def loop(port, blob, **more):
    connection = (f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};"
                  f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;")
    return subprocess.Popen([python_peer(), ROOT / "benches/blob_loop.py", connection, "peer", blob],
                            stderr=subprocess.DEVNULL, text=True, **more)


def cpu_seconds(pid):
    """The CPU time of a process to the nanosecond, where /proc counts whole ticks of 10 ms."""
    return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) returns


def footprint():
    heading("python loop")
    size = TENURE.stat().st_size
    row("release binary, stripped (goal 7 MB)", f"{size / 1e6:.2f} MB")
    with azurite() as store:
        create_lock(store, ["footprint"])
        port = free_port()
        with tenure(port, on_azurite(store), "--election", "footprint") as ours:
            peer = loop(store, "footprint", stdout=subprocess.DEVNULL)
            try:
                until(lambda: leads(port))
                time.sleep(10)
                start, at = cpu_seconds(ours.pid), now()
                peer_start = cpu_seconds(peer.pid)
                time.sleep(60)
                took = now() - at
                cpu = 100 * (cpu_seconds(ours.pid) - start) / took
                peer_cpu = 100 * (cpu_seconds(peer.pid) - peer_start) / took
                rss, peer_rss = resident(ours.pid), resident(peer.pid)
            finally:
                peer.kill()
                peer.wait()
    row("resident memory after a minute (goal 8 MiB)", f"{rss / MIB:.1f} MiB", f"{peer_rss / MIB:.1f} MiB",
        f"{rss / peer_rss:.2f}")
    row("CPU at 2 s renewals, of one core (goal 0.1 %)", f"{cpu:.3f} %", f"{peer_cpu:.3f} %",
        f"{cpu / peer_cpu:.2f}" if peer_cpu else "")


ADDITIONS = {
    "as it is": (),
    "admin listener, asked once": ("--admin", "unix:{home}/admin.sock"),
    "two probes": ("--health", "tcp://127.0.0.1:{store}", "--health", "exec:true"),
    "three hooks": ("--on-active", "true", "--on-passive", "true", "--on-leader-change", "true"),
    "the page, read once": (),
    "all of these": ("--admin", "unix:{home}/admin-all.sock", "--health", "tcp://127.0.0.1:{store}", "--health",
                     "exec:true", "--on-active", "true", "--on-passive", "true", "--on-leader-change", "true"),
}


def additions(seconds=60):
    """Measures leaders that renew on Azurite in the same minute; the first is the baseline."""
    heading("beyond it")
    with azurite() as store, tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        elections = [f"addition-{n}" for n in range(len(ADDITIONS) + 1)]
        create_lock(store, elections)
        processes, ports = [], []
        for election, more in zip(elections, ADDITIONS.values()):
            ports.append(free_port())
            more = [it.format(home=home, store=store) for it in more]
            processes.append(stack.enter_context(tenure(ports[-1], on_azurite(store), "--election", election, *more)))
        under = stack.enter_context(running(TENURE, "exec", "--election", elections[-1], "--store", *on_azurite(store),
                                            "--", "sleep", "600"))
        for (what, more), port in zip(ADDITIONS.items(), ports):
            until(lambda: leads(port))
            if "--admin" in more:
                admin = more[more.index("--admin") + 1].format(home=home)
                # Rejected, since nothing drains; the listener has served a request all the same.
                subprocess.run([TENURE, "drained", "--admin", admin], stderr=subprocess.DEVNULL)
            if what.startswith(("the page", "all")):
                ask(port, "/")
        reaper = until(lambda: children(under.pid))[0]
        watchdog = until(lambda: children(reaper))[0]
        time.sleep(seconds)
        sizes = [resident(it.pid) for it in (*processes, under)]
        names = (*(f"run, {it}" for it in ADDITIONS), "exec")
        for what, size in zip(names, sizes):
            row(f"resident memory: {what}", f"{size / MIB:.2f} MiB", f"{(size - sizes[0]) / MIB:+.2f} MiB")
        row("  its watchdog, the program's own pages with it", f"{resident(watchdog) / MIB:.2f} MiB")
        row("  of that its own", f"{own(watchdog) / MIB:.2f} MiB")
        row("  its reaper's own", f"{own(reaper) / MIB:.2f} MiB")


def own(pid):
    """Returns the private memory of a process in bytes."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"Private_\w+:\s+(\d+)", rollup))) * 1024


def children(pid):
    return [int(it) for it in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wrk(port, connections):
    result = subprocess.run(["wrk", "-t1", f"-c{connections}", "-d2s", "--latency",
                             f"http://127.0.0.1:{port}/leader"], capture_output=True, text=True, check=True)
    if "Non-2xx" in result.stdout:
        raise SystemExit("the leader did not lead all the time")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", result.stdout)[1])
    amount, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", result.stdout).groups()
    return rate, float(amount) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def listener():
    if not shutil.which("wrk"):
        raise SystemExit("wrk is missing: install Debian's package wrk")
    heading("bare axum")
    port, bare = free_port(), free_port()
    with tempfile.TemporaryDirectory() as home, running(BARE, f"127.0.0.1:{bare}"), \
            tenure(port, (f"file://{home}",)):
        until(lambda: leads(port) and connects(bare))
        for connections in 8, 64:
            ours, peer = [], []
            for _ in range(10):  # alternating, so that load on the machine affects both
                ours.append(wrk(port, connections))
                peer.append(wrk(bare, connections))
            rate, p99 = (statistics.median(column) for column in zip(*ours))
            peer_rate, peer_p99 = (statistics.median(column) for column in zip(*peer))
            # The median of the ratios of each turn.
            ratio, p99_ratio = (statistics.median(a / b for a, b in zip(*columns))
                                for columns in zip(zip(*ours), zip(*peer)))
            row(f"/leader a second, {connections} connections (goal 0.9)", f"{rate:,.0f}",
                f"{peer_rate:,.0f}", f"{ratio:.2f}")
            row(f"  p99, {connections} connections", f"{p99:.2f} ms", f"{peer_p99:.2f} ms",
                f"{p99_ratio:.2f}")


def start(trials):
    heading("")
    answers, leaders = [], []
    for _ in range(trials):
        with tempfile.TemporaryDirectory() as home:
            port, began = free_port(), now()
            with tenure(port, (f"file://{home}",)):
                until(lambda: ask(port)[0], pause=0.0005)
                answers.append(now() - began)
                until(lambda: leads(port), pause=0.0005)
                leaders.append(now() - began)
    for what, times in (("start to first answer (goal 50 ms)", answers),
                        ("start to leader on file: (goal 100 ms)", leaders)):
        row(what, f"{1000 * statistics.median(times):.0f} ms", "", "")
        row(f"  worst of {trials}", f"{1000 * max(times):.0f} ms")


def one_handover(store, election, how):
    """Ends the leader of two; returns the time until the other leads, and the lease's age then."""
    ports = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(tenure(port, on_azurite(store), "--election", election,
                                                identity=f"bench-{port}")) for port in ports]
        until(lambda: sum(map(leads, ports)) == 1)
        until(lambda: all(b'"standby"' in ask(p, "/status")[1] or leads(p) for p in ports))
        first = 0 if leads(ports[0]) else 1
        time.sleep(random.uniform(2, 4))  # at a random point of the periods of both
        age = json.loads(ask(ports[first], "/status")[1])["store"]["last_success_ms_ago"] / 1000
        ended = now()
        processes[first].send_signal(how)
        until(lambda: leads(ports[1 - first]))
        return now() - ended, age


def peer_handover(store, blob, how):
    first = loop(store, blob, stdout=subprocess.PIPE)
    try:
        first.stdout.readline()
        second = loop(store, blob, stdout=subprocess.PIPE)
        try:
            time.sleep(random.uniform(4, 6))
            ended = now()
            first.send_signal(how)
            return float(second.stdout.readline().split()[1]) - ended
        finally:
            second.kill()
            second.wait()
    finally:
        first.kill()
        first.wait()


def handover(trials, abreast=4):
    heading("python loop")
    python_peer()
    with azurite() as store, ThreadPoolExecutor(abreast) as pool:
        for name, how in (("SIGTERM", signal.SIGTERM), ("kill -9", signal.SIGKILL)):
            elections = [f"{name.lower().replace(' ', '').replace('-', '')}-{n}" for n in range(trials)]
            create_lock(store, elections)
            ours = list(pool.map(lambda it: one_handover(store, it, how), elections))
            peers = list(pool.map(lambda it: peer_handover(store, it, how), elections[:8]))
            times = [took for took, _ in ours]
            row(f"{name} to the next leader, median of {trials}", f"{statistics.median(times):.2f} s",
                f"{statistics.median(peers):.2f} s", f"{statistics.median(times) / statistics.median(peers):.2f}")
            row("  worst", f"{max(times):.2f} s", f"{max(peers):.2f} s")
            if how == signal.SIGKILL:
                ages = [age for _, age in ours]
                lags = [took - (15 - age) for took, age in ours]
                row("  age of the lease when killed, median", f"{statistics.median(ages):.2f} s")
                row("  lag after the lease's end, median", f"{statistics.median(lags):.2f} s")
                row("  lag after the lease's end, worst", f"{max(lags):.2f} s")


def one_stop(home):
    """Stops the leader of two for 25 s with a request queued; returns whether the response is 200."""
    ports = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(tenure(port, (f"file://{home}",))) for port in ports]
        until(lambda: sum(map(leads, ports)) == 1)
        first = 0 if leads(ports[0]) else 1
        processes[first].send_signal(signal.SIGSTOP)
        time.sleep(24.5)
        with socket.create_connection(("127.0.0.1", ports[first]), 5) as queued:
            queued.sendall(b"GET /leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            time.sleep(0.5)
            processes[first].send_signal(signal.SIGCONT)
            return queued.recv(64).startswith(b"HTTP/1.1 200")


def stopped(trials):
    heading("")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(trials) as pool:
        homes = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(trials)]
        wrong = sum(pool.map(one_stop, homes))
    row("stopped for 25 s: questions answered \"leader\"", f"{wrong} of {trials}")


def renewals(log, since):
    """Returns when each renewal after `since` was sent, from the log."""
    for line in log.read_text().splitlines():
        with contextlib.suppress(ValueError):
            it = json.loads(line)
            if it.get("op") == "renew":
                answered = datetime.datetime.fromisoformat(it["timestamp"]).timestamp()
                sent = answered - int(it["ms"]) / 1000
                if sent > since:
                    yield sent


def livez(port, seconds):
    """Asks /livez on a new connection ten times a second, as a kubelet does from an address of its own;
    returns how long each took, in ms, sorted. One without an answer counts as ten seconds."""
    took, end = [], time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        answered = ask(port, "/livez", source="127.0.1.1")[0] == 200
        took.append(1000 * (time.monotonic() - began) if answered else 10_000)
        time.sleep(max(0, 0.1 - (time.monotonic() - began)))
    return sorted(took)


def lateness(seconds=60, period=0.5):
    heading("idle")

    def late(log, since):
        sent = list(renewals(log, since))
        # Each is due one retry-period after the previous one was sent.
        return sorted(1000 * (after - before - period) for before, after in zip(sent, sent[1:]))

    with tempfile.TemporaryDirectory() as home, hinting() as health:
        port, log = free_port(), pathlib.Path(home) / "log"
        with log.open("w") as written, running(
                TENURE, "run", "--listen", f"127.0.0.1:{port}", "--store", f"file://{home}/store",
                "--health", f"http://127.0.0.1:{health}/", "--health-interval", "1s",
                "--retry-period", f"{round(1000 * period)}ms", "--log-format", "json", "--log-level", "tenure=debug",
                stderr=written) as ours:
            until(lambda: leads(port))
            term = json.loads(ask(port, "/status")[1])["term"]
            began = time.time()
            calm_livez = livez(port, seconds)
            idle, calm = late(log, began), resident(ours.pid)
            with load(port):
                time.sleep(10)  # until everything has started
                began = time.time()
                busy_livez = livez(port, seconds)
                most, busy = resident(ours.pid, "VmHWM"), late(log, began)
            document = until(lambda: ask(port, "/status")[1])
            time.sleep(10)
            rest = resident(ours.pid)
    for what, pick in (("median", statistics.median), ("p99", lambda it: it[int(len(it) * 0.99)]),
                       ("worst", max)):
        row(f"renewals start late under load, {what} (goal 5 ms at p99)", f"{pick(busy):.1f} ms",
            f"{pick(idle):.1f} ms")
    row(f"  renewals in {seconds} s", len(busy) + 1, len(idle) + 1)
    row("  resident memory, most (goal 32 MiB)", f"{most / MIB:.1f} MiB", f"{calm / MIB:.1f} MiB")
    row("  resident memory, 10 s after the load", f"{rest / MIB:.1f} MiB")
    p99 = lambda it: it[int(len(it) * 0.99)]
    row("  /livez answers, p99 (goal 100 ms)", f"{p99(busy_livez):.0f} ms", f"{p99(calm_livez):.0f} ms")
    if json.loads(document)["term"] != term:
        raise SystemExit("the leader lost its term")


def build():
    if "BENCH_PROGRAM" not in os.environ:
        # One after the other: built together, Tenure gets the features that only tests use.
        for what in (["--example", "bare_axum"], ["--bin", "tenure"]):
            subprocess.run(["cargo", "build", "--release", "--locked", *what], cwd=ROOT, check=True)


def build_full():
    if "BENCH_PROGRAM" not in os.environ:
        subprocess.run(["cargo", "build", "--release", "--locked", "--features", "mongodb", "--bin", "tenure",
                        "--target-dir", "target/full"], cwd=ROOT, check=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("bench")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    trials = options.trials
    benches = {"footprint": footprint, "additions": additions, "listener": listener, "start": lambda: start(trials),
               "handover": lambda: handover(trials), "lock": lambda: locks.lock(trials),
               **{f"peers-{store}": lambda store=store: peers.peers(store, trials) for store in peers.STORES},
               "stores": lambda: stores.stores(trials), "stopped": lambda: stopped(trials), "leases": lambda: leases.leases(trials), "lateness": lateness}
    if options.bench == "switchover":
        return switchover(trials)
    if options.bench not in (*benches, "all", "build"):
        raise SystemExit(__doc__)
    build()
    if options.bench in ("stores", "all", "build"):
        build_full()
    for name, bench in benches.items():
        if options.bench in (name, "all"):
            bench()


main()
