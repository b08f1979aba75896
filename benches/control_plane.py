"""A Kubernetes control plane for the benchmarks: etcd and kube-apiserver on free ports. The token
grants all permissions.
"""
import contextlib, os, pathlib, signal, ssl, subprocess, tempfile, urllib.request

from processes import free_port, running, tool, until

TOKEN = "admin-of-the-benches"


class ControlPlane:
    """The API server's address, and the files that its clients need."""

    def __init__(self, home, port, process):
        self.port, self.process = port, process
        self.url = f"https://127.0.0.1:{port}"
        self.ca_file, self.token_file = home / "certificates/apiserver.crt", home / "token"

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit("kube-apiserver ended before it was ready")
        with contextlib.suppress(OSError):
            trust = ssl.create_default_context(cafile=str(self.ca_file))
            asked = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            return urllib.request.urlopen(asked, timeout=2, context=trust).status == 200
        return False

    @contextlib.contextmanager
    def hung(self):
        """Stops the API server for the block: it accepts connections, but does not respond."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def control_plane():
    client, peer, port = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        home = pathlib.Path(home)
        key, tokens = home / "accounts.key", home / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, stderr=subprocess.DEVNULL)
        tokens.write_text(f"{TOKEN},admin,1,system:masters\n")
        (home / "token").write_text(TOKEN)
        urls = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        stack.enter_context(running(
            tool("etcd"), "--data-dir", home / "etcd", "--unsafe-no-fsync", "--listen-client-urls", urls[0],
            "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls",
            urls[1], "--initial-cluster", f"default={urls[1]}"))
        api = stack.enter_context(running(
            tool("kube-apiserver"), f"--etcd-servers={urls[0]}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={home / 'certificates'}",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC", f"--token-auth-file={tokens}", "--endpoint-reconciler-type=none",
            cwd=home, env={**os.environ, "HOME": str(home)}))
        it = ControlPlane(home, port, api)
        until(it.is_ready, 120, 0.1)
        yield it
