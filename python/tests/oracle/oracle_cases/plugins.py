"""Plugins and backends: lists, parameters, creation."""

from __future__ import annotations

from .normal import attempt, normal, type_name
from .registry import case


@case()
def plugin_list(nx, ctx):
    """A list of names with UCX in it, the same object as the attribute."""
    agent = ctx.agent()
    found = agent.get_plugin_list()
    return [
        type_name(found),
        "UCX" in found,
        found == agent.plugin_list,
        all(isinstance(p, str) for p in found),
        len(set(found)) == len(found),
    ]


@case()
def memory_types_of_ucx(nx, ctx):
    """What the UCX plugin can move."""
    return sorted(ctx.agent().get_plugin_mem_types("UCX"))


@case()
def memory_types_of_the_ucx_backend(nx, ctx):
    """What the UCX backend can move here."""
    return sorted(ctx.agent(backends=["UCX"]).get_backend_mem_types("UCX"))


@case()
def parameters_of_ucx(nx, ctx):
    """The plugin's parameters: texts for texts, with the names that clients set."""
    found = ctx.agent().get_plugin_params("UCX")
    return [
        type_name(found),
        all(isinstance(k, str) and isinstance(v, str) for k, v in found.items()),
        {
            k: k in found
            for k in ("num_workers", "num_threads", "ucx_error_handling_mode", "ucx_devices", "engine_config")
        },
    ]


@case()
def default_parameters_of_ucx(nx, ctx):
    """Every parameter of the plugin and its default."""
    return ctx.agent().get_plugin_params("UCX")


@case()
def parameters_asked_twice(nx, ctx):
    """Asking twice gives the same."""
    agent = ctx.agent()
    return [
        agent.get_plugin_params("UCX") == agent.get_plugin_params("UCX"),
        agent.get_plugin_mem_types("UCX") == agent.get_plugin_mem_types("UCX"),
    ]


@case()
def unknown_plugin(nx, ctx):
    """A plugin that does not exist: empty answers."""
    agent = ctx.agent()
    return [attempt(agent.get_plugin_mem_types, "NO_SUCH"), attempt(agent.get_plugin_params, "NO_SUCH")]


@case()
def backend_that_was_not_made(nx, ctx):
    """A plugin without a backend: empty answers."""
    agent = ctx.agent()
    return [attempt(agent.get_backend_mem_types, "UCX"), attempt(agent.get_backend_params, "UCX")]


@case()
def parameters_of_the_backend(nx, ctx):
    """A backend has parameters, as texts."""
    found = ctx.agent(backends=["UCX"]).get_backend_params("UCX")
    return [type_name(found), all(isinstance(k, str) and isinstance(v, str) for k, v in found.items())]


@case()
def given_parameters_are_told(nx, ctx):
    """A parameter that was set shows in the backend's parameters."""
    agent = ctx.agent()
    agent.create_backend("UCX", {"num_threads": "2", "num_workers": "1"})
    found = agent.get_backend_params("UCX")
    return [found.get("num_threads"), found.get("num_workers")]


@case()
def creation(nx, ctx):
    """Creating a backend returns nothing and shows in the attributes."""
    agent = ctx.agent()
    answer = agent.create_backend("UCX")
    return [answer, sorted(agent.backends), sorted(agent.backend_mems), sorted(agent.backend_options)]


@case()
def creation_twice(nx, ctx):
    """A second backend of the same type."""
    agent = ctx.agent()
    agent.create_backend("UCX")
    return [attempt(agent.create_backend, "UCX"), sorted(agent.backends)]


@case()
def creation_of_an_unknown_type(nx, ctx):
    """A backend without a plugin."""
    agent = ctx.agent()
    return [attempt(agent.create_backend, "NO_SUCH"), sorted(agent.backends)]


@case()
def own_defaults_are_accepted(nx, ctx):
    """The plugin's parameters can be handed back as they are: Dynamo does so."""
    agent = ctx.agent()
    return attempt(agent.create_backend, "UCX", dict(agent.get_plugin_params("UCX")))


@case()
def engine_config_is_accepted(nx, ctx):
    """The parameters that vLLM sets."""
    agent = ctx.agent()
    return attempt(agent.create_backend, "UCX", {"num_threads": "4", "engine_config": "RCACHE_ENABLE=n,TLS=^cuda_ipc"})


@case()
def unknown_parameters_are_accepted(nx, ctx):
    """Parameters that nobody knows."""
    agent = ctx.agent()
    return attempt(agent.create_backend, "UCX", {"no_such_parameter": "1", "another": ""})


@case(
    differs="stock refuses to start when a device of the list is missing; kvferry chooses its path itself and logs "
    "that the list is not used",
    stock={"outcome": "ok", "result": {"raises": "nixlBackendError", "status": "NIXL_ERR_BACKEND"}},
    ours={"outcome": "ok", "result": {"returns": None}},
)
def missing_device_in_the_parameters(nx, ctx):
    """A list of network devices of which this machine has none."""
    return attempt(ctx.agent().create_backend, "UCX", {"device_list": "mlx5_0"})


@case(
    differs="stock takes parameters as texts alone; here a number is written as its text",
    stock={"outcome": "ok", "result": {"raises": "TypeError"}},
    ours={"outcome": "ok", "result": {"returns": None}},
)
def parameters_in_numbers(nx, ctx):
    """A parameter given as a number."""
    return attempt(ctx.agent().create_backend, "UCX", {"num_threads": 4})


@case()
def parameters_that_are_no_dictionary(nx, ctx):
    """Parameters given as something else."""
    return [attempt(ctx.agent("a").create_backend, "UCX", 5), attempt(ctx.agent("b").create_backend, "UCX", "abc")]


@case()
def error_mode_none(nx, ctx):
    """The error handling modes of UCX are accepted."""
    return [
        attempt(ctx.agent(mode).create_backend, "UCX", {"ucx_error_handling_mode": mode}) for mode in ("none", "peer")
    ]


@case()
def raw_plugin_parameters(nx, ctx):
    """The bindings give parameters and memory types together."""
    raw = ctx.agent().agent
    params, mems = raw.getPluginParams("UCX")
    return [type_name(params), sorted(mems), attempt(raw.getPluginParams, "NO_SUCH")]


@case()
def raw_backend(nx, ctx):
    """The bindings create a backend and answer with its handle."""
    raw = ctx.agent().agent
    handle = raw.createBackend("UCX", {})
    params, mems = raw.getBackendParams(handle)
    return [
        type_name(handle),
        handle != 0,
        type_name(params),
        sorted(mems),
        attempt(raw.createBackend, "NO_SUCH", {}),
        type_name(raw.getAvailPlugins()),
    ]


@case()
def unhashable_names(nx, ctx):
    """Names of plugins that are no texts."""
    agent = ctx.agent()
    return [
        attempt(agent.get_plugin_params, None),
        attempt(agent.create_backend, 5),
        attempt(agent.get_backend_params, 5),
    ]


@case()
def names_of_shipped_plugins(nx, ctx):
    """Plugins for local storage that callers look for before they use them."""
    found = ctx.agent().get_plugin_list()
    return normal({"POSIX": "POSIX" in found})
