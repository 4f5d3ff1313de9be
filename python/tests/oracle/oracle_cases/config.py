"""Configuration objects of the API and of the bindings."""

from __future__ import annotations

import inspect

from .normal import attempt, attempt_type, normal
from .registry import case

FIELDS = ("backends", "enable_pthread", "enable_listen", "port", "capture_telemetry", "num_threads", "sync_mode")


def shown(config) -> dict:
    return {name: normal(getattr(config, name)) for name in FIELDS}


@case()
def defaults(nx, _):
    """A configuration without arguments."""
    config = nx.api.nixl_agent_config()
    return [shown(config), sorted(vars(config))]


@case()
def positional(nx, _):
    """All arguments by position, in stock's order."""
    strict = nx.api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    return shown(nx.api.nixl_agent_config(False, True, 1234, True, 3, ["POSIX"], strict))


@case()
def keywords(nx, _):
    """All arguments by name."""
    rw = nx.api.nixl_thread_sync_t.NIXL_THREAD_SYNC_RW
    return shown(
        nx.api.nixl_agent_config(
            sync_mode=rw,
            backends=[],
            num_threads=8,
            capture_telemetry=True,
            listen_port=0,
            enable_listen_thread=True,
            enable_prog_thread=False,
        )
    )


def parameters(function) -> list:
    """Names, kinds and defaults; the sequence types of defaults are free, and so is how an empty one is written."""
    out = []
    for p in inspect.signature(function).parameters.values():
        if p.default is p.empty:
            default = "required"
        elif p.default is None or p.default in ([], (), {}):
            default = "empty"
        else:
            default = normal(list(p.default) if isinstance(p.default, tuple) else p.default)
        out.append([p.name, p.kind.name, default])
    return out


@case()
def parameter_names(nx, _):
    """Names, kinds and defaults of the parameters."""
    return parameters(nx.api.nixl_agent_config.__init__)


@case()
def parameter_names_of_the_agent(nx, _):
    """Names, kinds and defaults of the parameters of every public method of an agent."""
    methods = """
        __init__ add_remote_agent check_remote_metadata check_remote_xfer_done check_xfer_state create_backend
        deregister_memory deserialize_descs estimate_xfer_cost fetch_remote_metadata get_agent_metadata
        get_backend_mem_types get_backend_params get_new_notifs get_partial_agent_metadata get_plugin_list
        get_plugin_mem_types get_plugin_params get_reg_descs get_remote_descs get_serialized_descs get_xfer_descs
        get_xfer_telemetry initialize_xfer invalidate_local_metadata make_connection make_prepped_xfer prep_mem_view
        prep_xfer_dlist query_memory query_xfer_backend register_memory release_dlist_handle release_mem_view
        release_xfer_handle remove_remote_agent send_local_metadata send_notif send_partial_agent_metadata transfer
        update_notifs
    """.split()
    return {name: parameters(getattr(nx.api.nixl_agent, name)) for name in methods}


@case()
def sync_mode_of_another_type(nx, _):
    """A thread mode that is not the API's enum."""
    make = nx.api.nixl_agent_config
    return [
        attempt(make, sync_mode=1),
        attempt(make, sync_mode="STRICT"),
        attempt(make, sync_mode=nx.bindings.NIXL_THREAD_SYNC_RW),
    ]


@case()
def unknown_argument(nx, _):
    """An argument that does not exist."""
    return attempt(nx.api.nixl_agent_config, enable_magic=True)


@case()
def values_are_kept_unchecked(nx, _):
    """Nothing but the thread mode is checked before an agent is made; fields can be set later."""
    config = nx.api.nixl_agent_config(num_threads="4", backends="UCX")
    config.port = -1
    config.note = "own attribute"
    return [config.num_threads, config.backends, config.port, config.note]


@case()
def every_sync_mode_makes_an_agent(nx, ctx):
    """An agent with each thread mode."""
    return [ctx.agent(mode.name, sync_mode=mode).name for mode in nx.api.nixl_thread_sync_t]


@case()
def bindings_defaults(nx, _):
    """The bindings' configuration object without arguments."""
    config = nx.bindings.nixlAgentConfig()
    names = ("useProgThread", "useListenThread", "listenPort", "syncMode", "captureTelemetry")
    return {name: normal(getattr(config, name)) for name in names}


@case()
def bindings_delays(nx, _):
    """Its delays: numbers that can be set."""
    config = nx.bindings.nixlAgentConfig()
    config.pthrDelay, config.lthrDelay = 7, 9
    return [config.pthrDelay, config.lthrDelay, hasattr(config, "etcdWatchTimeout")]


@case()
def bindings_by_position(nx, _):
    """Its overloads with more and more arguments."""
    b = nx.bindings
    full = b.nixlAgentConfig(True, True, 4321, b.NIXL_THREAD_SYNC_RW)
    short = b.nixlAgentConfig(False)
    return [
        full.useProgThread,
        full.useListenThread,
        full.listenPort,
        normal(full.syncMode),
        short.useProgThread,
        short.useListenThread,
    ]


@case()
def bindings_refuse_other_types(nx, _):
    """Fields of the bindings' configuration are typed."""
    config = nx.bindings.nixlAgentConfig()
    return [
        attempt(setattr, config, "useProgThread", "yes"),
        attempt(setattr, config, "listenPort", "8888"),
        attempt(setattr, config, "syncMode", 1),
        attempt_type(nx.bindings.nixlAgentConfig, "yes"),
    ]


@case()
def fields_of_the_wrong_type_reach_the_agent(nx, _):
    """A configuration with values that no agent can use."""
    make = nx.api.nixl_agent
    out = []
    for field, value in (("port", "no"), ("enable_listen", "yes"), ("capture_telemetry", None), ("num_threads", "4")):
        config = nx.api.nixl_agent_config(backends=[])
        setattr(config, field, value)
        out.append([field, attempt_type(make, f"config-types-{field}", config)])
    return out
