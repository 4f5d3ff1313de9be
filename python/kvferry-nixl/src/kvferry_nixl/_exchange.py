"""Metadata from agent to agent: over a socket of its own, or by way of etcd.

The protocol is kvferry's. Both ends prove to each other that they hold KVFERRY_TOKEN, and each frame is sealed with a key
of that connection; nothing is secret on the wire. Without a token the listener is on the loopback device only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import queue
import secrets
import socket
import struct
import threading
import weakref
from typing import Any, Callable, Dict, Optional

from kvferry_nixl._errors import _NixlError, nixlInvalidParamError, nixlNotAllowedError, nixlNotSupportedError
from kvferry_nixl._etcd import Etcd
from kvferry_nixl._log import logger

MAGIC = b"KFX1"
TIMEOUT = 5.0
MOST = 256 << 20
"""Bytes of a frame."""
CONNECTIONS = 32
"""Peers that a listener serves at once."""


_warned = False


class Refused(ConnectionError):
    """The other end holds another token, or speaks something else."""


class Channel:
    """A connection whose ends have proven that they hold the same token."""

    def __init__(self, connection: socket.socket, token: bytes, server: bool) -> None:
        connection.settimeout(TIMEOUT)
        self._connection = connection
        self._ours, self._theirs = (b"server", b"client") if server else (b"client", b"server")
        self._sent = self._received = 0
        key = hashlib.sha256(b"kvferry exchange " + token).digest()
        if server:
            nonce = secrets.token_bytes(32)
            connection.sendall(MAGIC + nonce)
            hello = self._take(4 + 32 + 32)
            client, proof = hello[4:36], hello[36:]
            if hello[:4] != MAGIC or not hmac.compare_digest(proof, _seal(key, b"client", nonce, client)):
                raise Refused("the client does not hold the same KVFERRY_TOKEN, or speaks another protocol")
            connection.sendall(_seal(key, b"server", nonce, client))
        else:
            hello = self._take(4 + 32)
            if hello[:4] != MAGIC:
                raise Refused("what listens there speaks another protocol")
            nonce, client = hello[4:], secrets.token_bytes(32)
            connection.sendall(MAGIC + client + _seal(key, b"client", nonce, client))
            try:
                proof = self._take(32)
            except ConnectionError:
                proof = b""
            if not hmac.compare_digest(proof, _seal(key, b"server", nonce, client)):
                raise Refused("the listener does not hold the same KVFERRY_TOKEN")
        self._key = _seal(key, b"session", nonce, client)

    def send(self, payload: bytes) -> None:
        """Sends a frame."""
        seal = _seal(self._key, self._ours, struct.pack("<Q", self._sent), payload)
        self._sent += 1
        self._connection.sendall(struct.pack("<I", len(payload)) + seal + payload)

    def receive(self) -> bytes:
        """The next frame; empty at the end."""
        try:
            head = self._take(4 + 32)
        except ConnectionError:
            return b""
        (size,) = struct.unpack_from("<I", head)
        if size > MOST:
            raise Refused(f"a frame of {size} bytes is too long")
        payload = self._take(size)
        if not hmac.compare_digest(head[4:], _seal(self._key, self._theirs, struct.pack("<Q", self._received), payload)):
            raise Refused("a frame's seal is wrong")
        self._received += 1
        return payload

    def _take(self, size: int) -> bytes:
        # Piece by piece: nothing is allocated on the other end's word alone.
        parts, left = [], size
        while left:
            part = self._connection.recv(min(left, 1 << 16))
            if not part:
                raise ConnectionError("the other end has closed the connection")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


class Exchange:
    """An agent's exchange of metadata. Nothing here makes its callers wait, and nothing keeps the agent alive."""

    def __init__(self, agent: Any) -> None:
        self._agent = weakref.ref(agent)
        self._name = agent._name
        self._pid = os.getpid()
        self._token = os.environ.get("KVFERRY_TOKEN", "").encode()
        self._listener: Optional[socket.socket] = None
        self._lock = threading.Lock()
        self._errands: Dict[str, queue.SimpleQueue] = {}
        self._etcd: Optional[Etcd] = None
        self._closed = False
        self.port: Optional[int] = None

    # The listener.

    def listen(self, port: int) -> None:
        """Opens the listener; port 0 is any that is free."""
        everywhere = bool(self._token)
        global _warned
        if not everywhere and not _warned:
            _warned = True
            logger.warning(
                "the metadata listener has no token: it listens on the loopback device only. Set KVFERRY_TOKEN on both "
                "ends for others"
            )
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0" if everywhere else "127.0.0.1", port))
            listener.listen(64)
        except OSError as error:
            listener.close()
            raise RuntimeError(f"the metadata listener can't have port {port}: {error}") from error
        self._listener, self.port = listener, listener.getsockname()[1]
        logger.info("MD listener is listening on port %d", self.port)
        slots = threading.BoundedSemaphore(CONNECTIONS)
        _thread(_accept, listener, self._token, self._agent, slots)

    # Errands.

    def send(self, blob: bytes, ip: str, port: int, label: str = "", partial: bool = False) -> None:
        """Sends metadata to a listener, or puts it into etcd."""
        if ip:
            self._run(f"{ip}:{port}", lambda: self._ask(ip, port, b"L" + blob))
            return
        etcd = self._store()
        key = label or ("partial" if partial else "metadata")
        self._run("etcd", lambda: etcd.put(self._name, key, blob))

    def fetch(self, peer: str, ip: str, port: int, label: str = "") -> None:
        """Asks for a peer's metadata and loads it. One that does not answer holds up no other."""
        self._usable()
        etcd = None if ip else self._store()
        _thread(self._fetch, peer, ip, port, label or "metadata", etcd)

    def _fetch(self, peer: str, ip: str, port: int, label: str, etcd: Optional[Etcd]) -> None:
        try:
            blob = self._ask(ip, port, b"G") if etcd is None else etcd.get(peer, label, TIMEOUT)
            agent = self._agent()
            if agent is None or self._closed:
                return
            name = agent.loadRemoteMD(blob).decode()
            if name != peer:
                logger.warning("metadata asked of %s is that of %s", peer, name)
        except (OSError, _NixlError, LookupError) as error:
            logger.error("no metadata of %s from %s: %s", peer, f"{ip}:{port}" if ip else "etcd", error)

    def invalidate(self, ip: str, port: int) -> None:
        """Has a listener forget this agent, or takes its keys out of etcd."""
        if ip:
            self._run(f"{ip}:{port}", lambda: self._ask(ip, port, b"I" + self._name.encode()))
            return
        etcd = self._store()
        self._run("etcd", lambda: etcd.delete(self._name))

    def close(self) -> None:
        """Ends the listener and takes the keys out of etcd."""
        self._closed = True
        if self._pid != os.getpid():
            return
        if self._listener is not None:
            _shut(self._listener)
        for errands in self._errands.values():
            errands.put(None)
        if self._etcd is not None:
            self._etcd.close()

    def _ask(self, ip: str, port: int, question: bytes) -> bytes:
        return ask(ip, port, self._token, question)

    def _store(self) -> Etcd:
        self._usable()
        if os.environ.get("NIXL_TCPSTORE_ENDPOINT"):
            raise nixlNotSupportedError.of("NIXL_TCPSTORE_ENDPOINT: that store is not built; use etcd or a listener")
        endpoints = os.environ.get("NIXL_ETCD_ENDPOINTS", "").strip()
        if not endpoints:
            raise nixlInvalidParamError.of("no ip_addr was given, and NIXL_ETCD_ENDPOINTS is not set")
        with self._lock:
            if self._etcd is None:
                self._etcd = Etcd(endpoints, os.environ.get("NIXL_ETCD_NAMESPACE", "/nixl/agents"))
            return self._etcd

    def _usable(self) -> None:
        if self._pid != os.getpid():
            raise nixlNotAllowedError.of("this process was forked from the one that built the agent [agent.forked]")

    def _run(self, where: str, errand: Callable[[], Any]) -> None:
        """In order with the other errands to the same place."""
        self._usable()
        with self._lock:
            errands = self._errands.get(where)
            if errands is None:
                errands = self._errands[where] = queue.SimpleQueue()
                _thread(_run_errands, where, errands)
        errands.put(errand)


def ask(ip: str, port: int, token: bytes, question: bytes) -> bytes:
    """Asks a listener one question; its answer."""
    with socket.create_connection((ip, port), TIMEOUT) as connection:
        channel = Channel(connection, token, server=False)
        channel.send(question)
        answer = channel.receive()
    if answer[:1] != b"+":
        raise ConnectionError(answer[1:].decode(errors="replace") or "there was no answer")
    return answer[1:]


def _accept(listener: socket.socket, token: bytes, agent: weakref.ref, slots: threading.BoundedSemaphore) -> None:
    while True:
        try:
            connection, address = listener.accept()
        except OSError:
            return
        if agent() is None:
            connection.close()
            _shut(listener)
            return
        if not slots.acquire(blocking=False):
            logger.warning("%s: %d peers are being served already", address[0], CONNECTIONS)
            connection.close()
            continue
        _thread(_serve, connection, token, address[0], agent, slots)


def _serve(
    connection: socket.socket, token: bytes, whence: str, agent: weakref.ref, slots: threading.BoundedSemaphore
) -> None:
    try:
        with connection:
            channel = Channel(connection, token, server=True)
            while question := channel.receive():
                served = agent()
                if served is None:
                    return
                channel.send(_answer(served, question))
                del served
    except (OSError, ValueError) as error:
        logger.warning("metadata listener: %s: %s", whence, error)
    finally:
        slots.release()


def _answer(agent: Any, question: bytes) -> bytes:
    verb, body = question[:1], question[1:]
    try:
        if verb == b"L":
            return b"+" + agent.loadRemoteMD(body)
        if verb == b"G":
            return b"+" + agent.getLocalMD()
        if verb == b"I":
            agent.invalidateRemoteMD(body.decode())
            return b"+"
        return b"-unknown question"
    except (_NixlError, ValueError) as error:
        return b"-" + str(error).encode()


def _run_errands(where: str, errands: queue.SimpleQueue) -> None:
    while True:
        errand = errands.get()
        if errand is None:
            return
        try:
            errand()
        except (OSError, LookupError) as error:
            logger.error("metadata exchange with %s: %s", where, error)


def _shut(listener: socket.socket) -> None:
    try:
        # Wakes the thread in accept, which close alone does not.
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    listener.close()


def _thread(target: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=target, args=args, name="kvferry-exchange", daemon=True).start()


def _seal(key: bytes, *parts: bytes) -> bytes:
    seal = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        seal.update(struct.pack("<Q", len(part)) + part)
    return seal.digest()
