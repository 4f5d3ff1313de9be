//! The settings as documented.

/// One setting as documented: a row of `docs/config.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingDoc {
    /// The environment variable.
    pub variable: &'static str,
    /// Its default, in words where it is none of the allowed values.
    pub default: &'static str,
    /// The values allowed.
    pub allowed: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const fn doc(
    variable: &'static str,
    default: &'static str,
    allowed: &'static str,
    meaning: &'static str,
) -> SettingDoc {
    SettingDoc { variable, default, allowed, meaning }
}

const PATHS: &str =
    "names out of same_process, same_host, tcp, rdma, map, cma, cuda_ipc, separated by commas";

pub(super) const TABLE: &[SettingDoc] = &[
    doc(
        "KVFERRY_ADDRESS",
        "the address of the default route",
        "a host name or an IP address, without a port",
        "What peers on other hosts are told to connect to. Never the wildcard.",
    ),
    doc(
        "KVFERRY_NET_DEVICES",
        "all",
        "names of network devices, separated by commas",
        "The network devices to use.",
    ),
    doc(
        "KVFERRY_PORT_RANGE",
        "any free port",
        "FIRST-LAST, or one port, out of 1 to 65535",
        "The TCP ports to listen on.",
    ),
    doc(
        "KVFERRY_SOCKET_DIR",
        "none",
        "the absolute path of a directory that exists, at most 64 bytes",
        "Adds a Unix socket with a path in this directory, for peers of this host in another network namespace (containers that share the directory).",
    ),
    doc("KVFERRY_PEER_TIMEOUT", "3s", "100ms to 60m", "Silence after which a peer counts as lost."),
    doc("KVFERRY_CONNECT_TIMEOUT", "5s", "10ms to 60m", "The longest that connecting to a peer may take."),
    doc(
        "KVFERRY_CANCEL_TIMEOUT",
        "1s",
        "0 to 60m",
        "The longest that cancel, release, deregister and disconnect wait until the memory is quiet.",
    ),
    doc("KVFERRY_THREADS", "2, or 1 on a single core", "1 to 32", "Copy threads of an agent."),
    doc(
        "KVFERRY_INLINE_LIMIT",
        "16KiB",
        "0 to 2MiB",
        "Bytes that post may copy itself when nothing is queued to the peer; 0 forbids it.",
    ),
    doc(
        "KVFERRY_SPIN",
        "50us, or 0 on a single core",
        "0 to 1ms",
        "How long a thread that has just sent or received a small transfer over TCP looks for what follows it, giving way to other threads, before it sleeps; 0 lets it sleep at once.",
    ),
    doc(
        "KVFERRY_QUEUE_DEPTH",
        "1024",
        "1 to 65535",
        "Transfers to one peer that may be posted and unfinished; more fail with post.backlog.",
    ),
    doc(
        "KVFERRY_COLLAPSE",
        "false",
        "true or false (also 1, 0, yes, no, on, off)",
        "Whether memory from alloc is put on huge pages, which makes copies faster and the allocation slower.",
    ),
    doc(
        "KVFERRY_PTRACER",
        "any",
        "peer, any or never",
        "Whom this process lets reach its memory where Yama restricts ptrace to scope 1: any process of the user, the peer that connected last (Yama remembers one), or nobody.",
    ),
    doc(
        "KVFERRY_TOKEN",
        "none",
        "any text without control characters",
        "A secret that both sides must share, beside the one in the metadata. It never crosses the wire and is never printed.",
    ),
    doc(
        "KVFERRY_REQUIRE",
        "none",
        PATHS,
        "The only paths and mechanisms that may carry data. A peer that offers none of them fails at connect, a region at prepare.",
    ),
    doc("KVFERRY_FORBID", "none", PATHS, "Paths and mechanisms that may not carry data."),
    doc(
        "KVFERRY_LOG",
        "warn",
        "a level (off, error, warn, info, debug, trace) or topic=level, separated by commas; topics are register, peer, transfer, path, notify, control",
        "What is logged to standard error. register=debug prints each region with index, address, length, kind and device.",
    ),
];
