//! Random rounds of everything that can go wrong: see `kvferry_testkit::soak`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvferry_testkit::soak::main()
}
