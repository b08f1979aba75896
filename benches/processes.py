"""Shared by the benchmarks: Tenure and Azurite as processes, requests to them, and the rows of a table."""
import contextlib, http.client, json, os, pathlib, random, re, socket, subprocess, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TENURE = pathlib.Path(os.environ.get("BENCH_PROGRAM", ROOT / "target/release/tenure"))
# With `mongodb:`, which the default build leaves out.
TENURE_FULL = pathlib.Path(os.environ.get("BENCH_PROGRAM", ROOT / "target/full/release/tenure"))
MIB = 1024 * 1024


def row(what, ours, peer="", ratio=""):
    """Prints a row, and adds it to the file that tests/evidence reads."""
    print(f"{what:<60} {ours:>18} {peer:>18} {ratio:>8}", flush=True)
    if rows := os.environ.get("BENCH_ROWS"):
        with open(rows, "a") as written:
            print(json.dumps([what.strip(), str(ours), str(peer), str(ratio)], ensure_ascii=False), file=written)


def heading(peer):
    print(f"\n{'':<60} {'tenure':>18} {peer:>18} {'ratio':>8}", flush=True)


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def free_port():
    """Returns a free port below those that the kernel gives to outgoing connections, which might take it."""
    while True:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as it:
            it.bind(("127.0.0.1", port))
            return port


def until(question, bound=60.0, pause=0.002):
    end = now() + bound
    while now() < end:
        answer = question()
        if answer:
            return answer
        time.sleep(pause)
    raise SystemExit(f"waited {bound} s in vain")


def connects(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def running(*command, **more):
    process = subprocess.Popen([str(it) for it in command], **{"stdout": subprocess.DEVNULL,
                               "stderr": subprocess.DEVNULL, **more})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def tool(name):
    """The path of a tool of tests/tools/versions."""
    found = subprocess.run([ROOT / "tests/tools/path", name], stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        raise SystemExit(1)
    return pathlib.Path(found.stdout.strip())


def postgres():
    """Returns the directory of PostgreSQL's programs."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        raise SystemExit("PostgreSQL is missing: install Debian's package postgresql")
    return found[-1]


def as_postgres():
    """Returns what begins a command for PostgreSQL, which refuses to run as root."""
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups") if os.geteuid() == 0 else ()


@contextlib.contextmanager
def azurite():
    port = free_port()
    program = tool("azurite") / "node_modules/.bin/azurite-blob"
    with running(program, "--inMemoryPersistence", "--disableTelemetry", "--silent", "--blobHost",
                 "127.0.0.1", "--blobPort", port):
        until(lambda: connects(port))
        yield port


def tenure(port, store, *more, identity="bench"):
    program = TENURE_FULL if store[0].startswith("mongodb:") else TENURE
    return running(program, "run", "--identity", identity, "--listen", f"127.0.0.1:{port}",
                   "--store", *store, *more)


def on_azurite(azurite_port):
    return ("azure://devstoreaccount1/bench", "--azure-endpoint",
            f"http://127.0.0.1:{azurite_port}/devstoreaccount1")


def ask(port, path="/leader", source="127.0.0.1"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1, source_address=(source, 0))
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def leads(port):
    return ask(port)[0] == 200


def create_lock(port, elections):
    """Creates the lock blobs with a first term, so that no first leader waits for a minute."""
    store = on_azurite(port)
    for election in elections:
        subprocess.run([TENURE, "doctor", "--create", "--yes", "--election", election, "--store",
                        *store], stdout=subprocess.DEVNULL, check=True)


def resident(pid, what="VmRSS"):
    return int(re.search(what + r":\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024
