"""Hostile load for a status listener, all at once: ten thousand connections, 500 clients that send
requests without waiting for answers, requests sent a byte at a time, endless headers, invalid HTTP, and a
thousand subscribers of which half never read. And a health endpoint that floods interim answers.
"""
import contextlib, multiprocessing, os, resource, socket, time

WHOLE = b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(port, number=0, block=True):
    """Connects from one of 200 loopback addresses, so that ports do not run out."""
    it = socket.socket()
    it.bind((f"127.0.0.{1 + number % 200}", 0))
    it.settimeout(10)
    it.connect(("127.0.0.1", port))
    it.setblocking(block)
    return it


def say(it, words):
    """Sends without blocking; returns whether the connection is open."""
    try:
        it.send(words)
        return True
    except BlockingIOError:
        return True
    except OSError:
        return False


def crowd(port, count):
    """Holds `count` connections, and keeps replacing a tenth of them."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    held = []
    for number in range(1 << 40):
        with contextlib.suppress(OSError):
            it = connect(port, number, block=False)
            say(it, (b"", WHOLE, WHOLE[:20])[number % 3])
            held.append(it)
        if len(held) >= min(count, limit - 100):
            for old in held[:count // 10]:
                old.close()
            del held[:count // 10]
            time.sleep(1)


def drip(port, count=300):
    """Keeps `count` requests open that are never completed."""
    held = {}
    while True:
        for number in range(count):
            if number not in held or not say(held[number], b"x"):
                with contextlib.suppress(OSError):
                    held[number] = connect(port, number, block=False)
                    say(held[number], b"GET /")
        time.sleep(0.25)


def pour(port):
    """Sends headers of up to a GiB."""
    while True:
        with contextlib.suppress(OSError), connect(port) as it:
            it.sendall(b"GET /leader HTTP/1.1\r\nBig: ")
            for _ in range(1 << 14):
                it.sendall(b"x" * 65536)
        time.sleep(0.01)


def babble(port):
    """Sends invalid HTTP."""
    while True:
        for words in (b"nonsense\r\n\r\n", b"GET /leader HTTP/9.9\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
            with contextlib.suppress(OSError), connect(port) as it:
                it.sendall(words)
                it.recv(64)
            time.sleep(0.005)


def subscribe(port, count=1000):
    """Keeps requesting `count` event streams, and reads every other one."""
    held = {}
    while True:
        for number in range(count):
            if number not in held or not say(held[number], b""):
                with contextlib.suppress(OSError):
                    held[number] = connect(port, number, block=False)
                    say(held[number], WHOLE.replace(b"/leader", b"/watch"))
            elif number % 2:
                with contextlib.suppress(OSError):
                    if not held[number].recv(65536):
                        del held[number]
        time.sleep(0.5)


def pipeline(port, count=500):
    """Keeps `count` connections full of requests for the longest answers, and reads what comes."""
    paths = (b"/metrics", b"/status", b"/leader")
    batch = b"".join(WHOLE.replace(b"/leader", path) for path in paths) * 100
    held = {}
    while True:
        for number in range(count):
            if number not in held or not say(held[number], batch):
                with contextlib.suppress(OSError):
                    held[number] = connect(port, number, block=False)
            with contextlib.suppress(OSError):
                if number in held and not held[number].recv(1 << 20):
                    del held[number]


def hint(listener):
    """Answers each request of a health probe with 200, after most of the 64 KiB of interim answers that
    a probe allows."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    hints = hint * (60 * 1024 // len(hint))
    while True:
        it, _ = listener.accept()
        with contextlib.suppress(OSError), it:
            it.settimeout(1)
            it.recv(4096)
            it.sendall(hints + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextlib.contextmanager
def hinting():
    """Serves a health endpoint that floods interim answers, at the port that it returns."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.Process(target=hint, args=(listener,), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1]
    finally:
        process.kill()
        process.join()


def niced(part, *arguments):
    os.nice(19)
    part(*arguments)


@contextlib.contextmanager
def load(port, connections=10_000):
    """Runs all of the load on a listener until the block ends. It uses only the processor time that
    others leave, as far as the kernel allows: it stands for clients on other machines."""
    parts = [(crowd, connections), (pipeline,), (drip,), (pour,), (babble,), (subscribe,)]
    processes = [multiprocessing.Process(target=niced, args=(part, port, *more), daemon=True)
                 for part, *more in parts]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()
