//! Clients of nixl beside the engines: LMCache, Ray, Dynamo, TensorRT-LLM's Python agent.

use super::{Client, Mode, Packages, Program, both_paths};

/// What all of them but the last import. Its CUDA libraries are needed to import it, also where there is no GPU.
const TORCH: Packages = Packages::Whole(&["torch==2.13.0", "numpy==2.2.6"]);

/// Both of LMCache's channels over nixl.
pub(super) fn lmcache() -> Client {
    Client {
        name: "lmcache",
        title: "LMCache",
        version: "0.5.6",
        packages: vec![
            TORCH,
            Packages::Alone(&["lmcache==0.5.6"]),
            // What the channels import, out of all that the whole depends on.
            Packages::Whole(&[
                "aiohttp==3.14.5",
                "cachetools==8.0.2",
                "msgspec==0.23.0",
                "numba==0.68.1",
                "nvtx==0.2.17",
                "opentelemetry-api==1.40.0",
                "opentelemetry-sdk==1.40.0",
                "prometheus_client==0.24.1",
                "psutil==7.2.2",
                "py-cpuinfo==9.0.0",
                "pyyaml==6.0.4",
                "pyzmq==27.3.0",
                "requests==2.34.2",
                "sortedcontainers==2.4.0",
            ]),
        ],
        prepare: None,
        modes: modes(
            "lmcache_channels.py",
            &[("mp", &["mp"]), ("mp-killed", &["mp-killed"]), ("pd", &["pd"]), ("pd-killed", &["pd-killed"])],
        ),
    }
}

/// Ray's transport of tensors between actors.
pub(super) fn ray() -> Client {
    Client {
        name: "ray",
        title: "Ray",
        version: "2.60.0",
        packages: vec![TORCH, Packages::Whole(&["ray==2.60.0"])],
        prepare: None,
        modes: modes(
            "ray_transport.py",
            &[
                ("objects", &["objects", "empty"]),
                ("manager", &["manager", "overlap", "eviction"]),
                ("abort-killed", &["abort", "killed"]),
            ],
        ),
    }
}

/// What Dynamo's workers pass embeddings and the like with.
pub(super) fn dynamo() -> Client {
    Client {
        name: "dynamo",
        title: "Dynamo nixl_connect",
        version: "1.6.1",
        packages: vec![
            TORCH,
            Packages::Alone(&["ai-dynamo-runtime==1.6.1"]),
            Packages::Whole(&["pydantic==2.13.5"]),
        ],
        prepare: None,
        modes: modes(
            "dynamo_connect.py",
            &[("operations", &["operations", "concurrent"]), ("cancel-killed", &["cancel", "killed"])],
        ),
    }
}

/// TensorRT-LLM's agent in Python. It skips itself where the package is not there, and no registry has it.
pub(super) fn tensorrt_llm() -> Client {
    Client {
        name: "tensorrt-llm",
        title: "TensorRT-LLM Python agent",
        version: "1.2.1",
        packages: vec![Packages::Alone(&["numpy==2.2.6"])],
        prepare: None,
        modes: modes("tensorrt_llm_agent.py", &[("transfers-restart", &["transfers", "restart"])]),
    }
}

/// Modes of the table by the modes of the program that they run, each over both paths.
fn modes(program: &'static str, named: &[(&str, &[&str])]) -> Vec<Mode> {
    let mode = |(name, parts): &(&str, &[&str])| {
        Mode::new(name, Program::Own(program)).args(&["--mode"]).args(parts).limit(11 * 60)
    };
    both_paths(named.iter().map(mode).collect())
}
