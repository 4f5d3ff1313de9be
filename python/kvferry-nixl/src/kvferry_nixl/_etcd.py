"""Metadata in etcd, by its JSON interface. Keys hang on a lease: those of an agent that died go by themselves."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from typing import Any, List, Optional
from urllib.parse import urlsplit

from kvferry_nixl._errors import nixlInvalidParamError
from kvferry_nixl._log import logger

LEASE = 10
"""Seconds for which the keys of an agent stay that is not heard of."""
TIMEOUT = 3.0


class Etcd:
    """A client of one etcd cluster, for the keys of one agent."""

    def __init__(self, endpoints: str, namespace: str) -> None:
        self._endpoints: List[Any] = []
        for endpoint in endpoints.replace(";", ",").split(","):
            parts = urlsplit(endpoint.strip() if "//" in endpoint else f"http://{endpoint.strip()}")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise nixlInvalidParamError.of(f"NIXL_ETCD_ENDPOINTS: {endpoint!r} is no http address")
            self._endpoints.append(parts)
        self._namespace = namespace.rstrip("/")
        self._lock = threading.Lock()
        self._lease: Optional[str] = None
        self._stop = threading.Event()

    def put(self, agent: str, label: str, blob: bytes) -> None:
        """Stores metadata under the lease of this client."""
        key = _text(self._key(agent, label))
        self._call("kv/put", {"key": key, "value": _text(blob), "lease": self._leased()})

    def get(self, agent: str, label: str, patience: float) -> bytes:
        """The metadata of an agent, waiting for it to be put there.

        Raises LookupError if it is not by then.
        """
        key, end = _text(self._key(agent, label)), time.monotonic() + patience
        while True:
            found = self._call("kv/range", {"key": key}).get("kvs")
            if found:
                return base64.b64decode(found[0].get("value", ""))
            if time.monotonic() >= end or self._stop.is_set():
                raise LookupError(f"nothing under {self._namespace}/{agent}/{label} within {patience:g} s")
            time.sleep(0.05)

    def delete(self, agent: str) -> None:
        """Takes all metadata of an agent out."""
        prefix = self._key(agent, "")
        after = prefix[:-1] + bytes([prefix[-1] + 1])
        self._call("kv/deleterange", {"key": _text(prefix), "range_end": _text(after)})

    def close(self) -> None:
        """Gives the lease back, and the keys with it."""
        self._stop.set()
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self._call("lease/revoke", {"ID": lease})
            except OSError as error:
                logger.warning("etcd: the agent's keys go in %d s: %s", LEASE, error)

    def _key(self, agent: str, label: str) -> bytes:
        return f"{self._namespace}/{agent}/{label}".encode()

    def _leased(self) -> str:
        with self._lock:
            if self._lease is None:
                self._lease = self._call("lease/grant", {"TTL": LEASE})["ID"]
                threading.Thread(target=self._keep, name="kvferry-etcd", daemon=True).start()
            return self._lease

    def _keep(self) -> None:
        while not self._stop.wait(LEASE / 4):
            lease = self._lease
            if lease is None:
                return
            try:
                kept = self._call("lease/keepalive", {"ID": lease})
                if int(kept.get("result", {}).get("TTL", 0)) <= 0:
                    logger.error("etcd: the lease is gone, and the agent's keys with it: send the metadata again")
                    with self._lock:
                        self._lease = None
                    return
            except OSError as error:
                logger.warning("etcd: the lease could not be renewed: %s", error)

    def _call(self, method: str, body: dict) -> dict:
        failed: Optional[Exception] = None
        for parts in self._endpoints:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            connection = kind(parts.hostname, parts.port or 2379, timeout=TIMEOUT)
            try:
                connection.request("POST", f"/v3/{method}", json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status == 200:
                    # A stream's first line is all that is asked for.
                    return json.loads(text.splitlines()[0])
                failed = ConnectionError(f"{parts.netloc}: {answer.status} {text[:200].decode(errors='replace')}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                failed = ConnectionError(f"{parts.netloc}: {error}")
            finally:
                connection.close()
        raise failed or ConnectionError("no endpoint")


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
