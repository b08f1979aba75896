"""Works while this instance leads. Starts counting when it sends the request, so it never works too long."""
import os, time, urllib.error, urllib.request

URL = os.environ.get("TENURE_URL", "http://127.0.0.1:4040") + "/leader"

while True:
    sent = time.monotonic()
    try:
        with urllib.request.urlopen(URL, timeout=1) as answer:
            term = int(answer.headers["Tenure-Term"])
            until = sent + int(answer.headers["Tenure-Valid-For-Ms"]) / 1000
        print(f"leader in term {term} for {until - time.monotonic():.1f} s", flush=True)
    except (urllib.error.URLError, OSError):  # 503 means passive; so does no answer
        print("standby", flush=True)
    time.sleep(1)
