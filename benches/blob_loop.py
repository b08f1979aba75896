"""The baseline for the footprint and handover benchmarks: a loop over the official Python client that
keeps a blob lease. Prints a line at each change.

  python3 blob_loop.py CONNECTION_STRING CONTAINER BLOB
"""
import signal, sys, time
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError
from azure.storage.blob import BlobClient, BlobLeaseClient, ContainerClient

connection, container, blob = sys.argv[1:]
try:
    ContainerClient.from_connection_string(connection, container).create_container()
except ResourceExistsError:
    pass
client = BlobClient.from_connection_string(connection, container, blob)
try:
    client.upload_blob(b"", overwrite=False)
except (ResourceExistsError, HttpResponseError):
    pass

lease = None


def leave(*_):
    if lease:
        lease.release()
    sys.exit(0)


signal.signal(signal.SIGTERM, leave)
while True:
    try:
        if lease:
            lease.renew()
        else:
            new = BlobLeaseClient(client)
            new.acquire(lease_duration=15)
            lease = new
            print("leader", time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
    except AzureError:
        lease = None
    time.sleep(2)
