//! TCP: the suite that every transport passes, and processes that are cancelled, killed, stopped, misled and overloaded.

mod death;
mod load;
mod quiet;
mod refusal;
mod silence;
mod wire;

use std::net::TcpListener;

use kvferry::{Agent, Executor, Mechanism, Path, Route, Settings};
use kvferry_testkit::{
    conformance,
    conformance::Fixture,
    harness::{Launch, Worker, skip},
    unique_name,
};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

/// Two agents of one process that may meet over the network only.
struct Tcp {
    address: &'static str,
}

const LOOPBACK: Tcp = Tcp { address: "127.0.0.1" };
const LOOPBACK_V6: Tcp = Tcp { address: "::1" };

impl Fixture for Tcp {
    fn agent(&self, stem: &str, settings: Settings) -> Agent {
        let forbid = "same_process,same_host".parse().expect("two paths");
        let settings = Settings { address: Some(self.address.into()), forbid, ..settings };
        Agent::builder(unique_name(stem)).settings(settings).build().expect("an agent")
    }

    fn route(&self) -> Route {
        Route { path: Path::Tcp, mechanism: Mechanism::Stream, executor: Executor::Initiator }
    }
}

conformance!(loopback, LOOPBACK);

#[test]
fn the_copying_cases_over_ipv6() {
    if let Err(error) = TcpListener::bind((LOOPBACK_V6.address, 0)) {
        return skip(format!("no IPv6 loopback: {error}"));
    }
    let cases: [fn(&dyn Fixture); 6] = [
        conformance::round_trip,
        conformance::large_blocks,
        conformance::grids,
        conformance::repost,
        conformance::both_directions_at_once,
        conformance::path_names_the_transport,
    ];
    cases.iter().for_each(|case| case(&LOOPBACK_V6));
}

/// A worker that may meet others over loopback only.
fn launch(name: &str) -> Launch {
    Launch::new(CHILD, name).env("KVFERRY_ADDRESS", "127.0.0.1").env("KVFERRY_FORBID", "same_host")
}

fn worker(name: &str) -> Worker {
    launch(name).start()
}

/// Words that a transfer which ended early may leave half old and half new: a stream of bytes ends anywhere, and there are two.
const TORN: u64 = 2;
