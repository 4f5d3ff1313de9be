//! vLLM's NIXL connectors and its scheduler, of the wheel made for GPUs, on a machine without one.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::{Client, Mode, Packages, Prepare, Program, Setup, both_paths};
use crate::wheel;

/// Longest that making the stand-ins, or getting the source archive, may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The client `vllm`.
pub(super) fn client() -> Client {
    let prepared = |mode: Mode| {
        mode.directory("{environment}/source")
            .variable("LD_LIBRARY_PATH", "{environment}/stubs")
            .variable("LD_PRELOAD", "{environment}/stubs/libcuda.so.1")
    };
    let own = |name: &str| {
        let mode = Mode::new(name, Program::Own("vllm_connector.py"));
        prepared(mode.args(&[name, "--logs", "{work}"]).limit(15 * 60))
    };
    let plain = Mode::new("loop", Program::Shared("vllm_connector_loop.py")).verdict("PASS").limit(600);
    Client {
        name: "vllm",
        title: "vLLM connector",
        version: "0.33.0",
        packages: vec![Packages::OwnFile("vllm-requirements.txt")],
        prepare: Some(Prepare { revision: 2, run: |setup| environment(setup, "connector") }),
        modes: both_paths(vec![
            prepared(plain),
            own("pull"),
            own("push"),
            own("tp"),
            own("tp-push"),
            own("gather"),
            own("rejoin"),
            own("release"),
            own("release-push"),
        ]),
    }
}

/// Makes an environment fit for a machine without a GPU.
///
/// # Errors
/// Something can't be had; the program has said what.
pub(super) fn environment(setup: &Setup<'_>, what: &str) -> Result<()> {
    let mut python = Command::new(setup.python());
    setup.workspace().clean(&mut python);
    python.arg(setup.workspace().root.join("python/clients/vllm_environment.py"));
    python.arg(what).arg(setup.clients().join("cuda_stubs.py"));
    wheel::run(&mut python, "vllm_environment.py", LIMIT)
}
