"""What the UCX_* variables ask for, in kvferry's terms. They are read; none of them is ever an error."""

from __future__ import annotations

import os
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

# Which of kvferry's paths each transport of UCX stands for; those of no path move data within a device or over hardware
# that is none of kvferry's.
_PATHS: Dict[str, str] = {
    "self": "same_process",
    "posix": "same_host",
    "sysv": "same_host",
    "cma": "same_host",
    "xpmem": "same_host",
    "knem": "same_host",
    "tcp": "tcp",
    "cuda_ipc": "cuda_ipc",
    **dict.fromkeys(
        ("rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5", "dc_mlx5", "rc_gda", "gga_mlx5", "srd", "gaudi_gdr"), "rdma"
    ),
    **dict.fromkeys(("cuda_copy", "gdr_copy", "rocm_copy", "rocm_ipc", "rocm_gdr", "ze_copy", "ze_ipc"), ""),
}
_ALIASES: Dict[str, Tuple[str, ...]] = {
    "sm": ("posix", "sysv", "cma", "xpmem", "knem"),
    "shm": ("posix", "sysv", "cma", "xpmem", "knem"),
    "mm": ("posix", "sysv", "xpmem"),
    "ib": ("rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5", "dc_mlx5", "gga_mlx5", "srd"),
    "rc": ("rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5"),
    "rc_v": ("rc_verbs", "ud_verbs"),
    "rc_x": ("rc_mlx5", "ud_mlx5"),
    "ud": ("ud_verbs", "ud_mlx5"),
    "ud_v": ("ud_verbs",),
    "ud_x": ("ud_mlx5",),
    "dc": ("dc_mlx5",),
    "dc_x": ("dc_mlx5",),
    "cuda": ("cuda_copy", "cuda_ipc", "gdr_copy"),
    "rocm": ("rocm_copy", "rocm_ipc", "rocm_gdr"),
    "ze": ("ze_copy", "ze_ipc"),
}
PATHS: Tuple[str, ...] = ("same_process", "same_host", "tcp", "rdma", "cuda_ipc")

# Read elsewhere, or of no consequence to anybody.
_KNOWN = {"UCX_TLS", "UCX_NET_DEVICES"}


def forbidden(tls: str) -> FrozenSet[str]:
    """The paths that a list of transports rules out.

    ``all`` and an empty list rule out none. ``^`` before the list takes its transports away from all of them. A path is
    ruled out when none of its transports is left.
    """
    text = tls.strip()
    removes = text.startswith("^")
    names = [name.strip().lower().partition(":")[0] for name in text.lstrip("^").split(",")]
    names = [name.lstrip("\\") for name in names if name]
    if not removes and (not names or "all" in names):
        return frozenset()
    named = {transport for name in names for transport in _ALIASES.get(name, (name,))}
    if removes and "all" in names:
        named = set(_PATHS)
    left = set(_PATHS) - named if removes else named
    return frozenset(PATHS) - {_PATHS.get(transport, "") for transport in left}


def unknown(tls: str) -> List[str]:
    """Names in a list of transports that nobody knows."""
    names = [name.strip().lower().partition(":")[0].lstrip("\\") for name in tls.strip().lstrip("^").split(",")]
    return [name for name in names if name and name != "all" and name not in _PATHS and name not in _ALIASES]


def engine_config(text: str) -> Dict[str, str]:
    """The settings of a backend's parameter engine_config: ``NAME=VALUE,...``, where a value may hold commas itself."""
    settings: Dict[str, str] = {}
    last: Optional[str] = None
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if equals:
            last = name.strip().upper().removeprefix("UCX_")
            settings[last] = value.strip()
        elif last is not None and item.strip():
            settings[last] += f",{item.strip()}"
    return settings


class Wishes(NamedTuple):
    """What the environment and a backend's parameters ask for."""

    settings: Dict[str, str]
    """Keywords of :class:`kvferry.Settings`."""
    notes: List[str]
    """What is said of them, a line each."""


def wishes(
    parameters: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
    interfaces: Optional[List[str]] = None,
) -> Wishes:
    """Kvferry's settings for the UCX_* variables and the parameters of the backend. KVFERRY_* variables stand above them."""
    settings: Dict[str, str] = {}
    notes: List[str] = []
    config = engine_config(parameters.get("engine_config", ""))
    tls, where = config.pop("TLS", None), "engine_config TLS"
    if tls is None:
        tls, where = environment.get("UCX_TLS"), "UCX_TLS"
    if tls is not None:
        strange = unknown(tls)
        if strange:
            notes.append(f"{where}={tls}: nothing is known of {', '.join(strange)}")
        paths = forbidden(tls)
        if environment.get("KVFERRY_REQUIRE"):
            notes.append(f"{where}={tls} is not used, since KVFERRY_REQUIRE is set")
        elif paths:
            own = [name.strip() for name in environment.get("KVFERRY_FORBID", "").split(",")]
            names = sorted(paths.union(name for name in own if name))
            settings["forbid"] = ",".join(names)
            notes.append(f"{where}={tls} rules out the paths {', '.join(sorted(paths))}")

    devices = parameters.get("device_list") or parameters.get("ucx_devices") or config.pop("NET_DEVICES", "")
    devices = devices or environment.get("UCX_NET_DEVICES", "")
    if devices and devices != "all" and "KVFERRY_NET_DEVICES" not in environment:
        here = _interfaces() if interfaces is None else interfaces
        names = [name.strip() for name in devices.split(",") if name.strip()]
        net = [name for name in names if name in here]
        rest = [name for name in names if name not in here and name != "all"]
        if net and "all" not in names:
            settings["net_devices"] = ",".join(net)
        if rest:
            notes.append(f"UCX_NET_DEVICES: {', '.join(rest)} is no network interface here and is not used")

    others = sorted(name for name in environment if name.startswith("UCX_") and name not in _KNOWN)
    if others:
        notes.append(f"read and not used, for there is no UCX here: {', '.join(others)}")
    known = {"engine_config", "device_list", "ucx_devices"}
    unused = [f"{name}={value}" for name, value in parameters.items() if name not in known]
    unused += [f"engine_config {name}={value}" for name, value in config.items()]
    if unused:
        notes.append(f"backend parameters that have no meaning here: {', '.join(sorted(unused))}")
    return Wishes(settings, notes)


def _interfaces() -> List[str]:
    try:
        return os.listdir("/sys/class/net")
    except OSError:
        return []
