"""Making agents: names, attributes, what is skipped and what is refused."""

from __future__ import annotations

from .normal import attempt, attempt_type, normal, type_name
from .registry import case


@case()
def attributes(nx, ctx):
    """The attributes that clients touch, and their types."""
    agent = ctx.agent(backends=["UCX"])
    names = "agent name notifs backends backend_mems backend_options plugin_list nixl_mems nixl_ops".split()
    return {name: type_name(getattr(agent, name)) for name in names}


@case()
def names_are_free_text(nx, ctx):
    """Names with spaces, slashes, other alphabets and of some length."""
    names = ["with space", "a/b:c", "агент-日本", "x" * 300]
    return [ctx.agent(name=name).name == name for name in names]


@case()
def empty_name(nx, _):
    """An agent without a name."""
    return attempt(nx.api.nixl_agent, "", nx.api.nixl_agent_config(backends=[]))


@case()
def name_of_another_type(nx, _):
    """Names that are no text."""
    config = nx.api.nixl_agent_config(backends=[])
    return [attempt(nx.api.nixl_agent, name, config) for name in (None, 7, ["a"])]


@case()
def name_in_bytes(nx, ctx):
    """A name given as bytes."""
    config = nx.api.nixl_agent_config(backends=[])
    return attempt_type(nx.api.nixl_agent, b"bytes-name", config)


@case()
def memory_type_names(nx, ctx):
    """The names of memory types that methods take, with the deprecated ones."""
    return normal(ctx.agent().nixl_mems)


@case()
def operation_names(nx, ctx):
    """The names of operations that methods take."""
    return normal(ctx.agent().nixl_ops)


@case()
def without_backends(nx, ctx):
    """An agent without any backend."""
    agent = ctx.agent()
    return [normal(agent.backends), normal(agent.backend_mems), normal(agent.backend_options), normal(agent.notifs)]


@case()
def default_backend(nx, ctx):
    """No configuration means one backend, called UCX."""
    agent = nx.api.nixl_agent(ctx.name("default"))
    ctx.keep.append(agent)
    return [sorted(agent.backends), sorted(agent.backend_mems), sorted(agent.backend_options)]


@case()
def handle_of_a_backend(nx, ctx):
    """Backends are kept by name as numbers other than zero."""
    agent = ctx.agent(backends=["UCX"])
    return [type_name(agent.backends["UCX"]), agent.backends["UCX"] != 0]


@case()
def unknown_backend_is_skipped(nx, ctx):
    """A backend that has no plugin is left out with a warning."""
    return sorted(ctx.agent(backends=["NO_SUCH", "UCX"]).backends)


@case()
def instantiate_all_beside_a_configuration(nx, ctx):
    """With a configuration, `instantiate_all` is ignored."""
    agent = nx.api.nixl_agent(ctx.name("all"), nx.api.nixl_agent_config(backends=[]), True)
    ctx.keep.append(agent)
    return sorted(agent.backends)


@case()
def backends_given_as_tuple(nx, ctx):
    """Any iterable of names will do."""
    config = nx.api.nixl_agent_config(backends=("UCX",))
    agent = nx.api.nixl_agent(ctx.name("tuple"), config)
    ctx.keep.append(agent)
    return sorted(agent.backends)


@case()
def same_name_twice(nx, ctx):
    """Two agents of one name in one process live side by side."""
    first, second = ctx.agent(name="twin", backends=["UCX"]), ctx.agent(name="twin", backends=["UCX"])
    return [first.name, second.name, first.agent is second.agent]


@case()
def threads_option(nx, ctx):
    """A number of threads is accepted, with and without the progress thread."""
    return [
        sorted(ctx.agent("t", backends=["UCX"], num_threads=2).backends),
        sorted(ctx.agent("p", backends=["UCX"], enable_prog_thread=False).backends),
    ]


@case()
def twenty_agents(nx, ctx):
    """Agents are made and dropped one after the other."""
    for i in range(20):
        ctx.agent(f"{i}")
    return len(ctx.keep)


@case()
def agent_of_the_bindings(nx, ctx):
    """The bindings' own agent class."""
    b = nx.bindings
    agent = b.nixlAgent("raw-agent", b.nixlAgentConfig())
    return [
        type_name(agent),
        attempt(b.nixlAgent, "", b.nixlAgentConfig()),
        attempt(b.nixlAgent, "no-config"),
        attempt(b.nixlAgent, "bad-config", 3),
    ]


@case()
def several_agents_see_the_same_plugins(nx, ctx):
    """The list of plugins does not depend on the agent."""
    return ctx.agent("a").plugin_list == ctx.agent("b").plugin_list


@case()
def slots_of_handles(nx, _):
    """Handle classes take the agent's pybind object and a number."""
    out = []
    for name in ("nixl_xfer_handle", "nixl_prepped_dlist_handle"):
        cls = getattr(nx.api, name)
        out.append([cls.__name__, hasattr(cls, "release"), "__bool__" in dir(cls), "__len__" in dir(cls)])
    return out
