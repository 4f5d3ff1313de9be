//! A worker process for the tests of this crate: see `kvferry_testkit::child`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvferry_testkit::child::main()
}
