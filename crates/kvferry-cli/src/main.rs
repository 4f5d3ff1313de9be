//! The `kvferry` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvferry_cli::run(std::env::args_os(), None)
}
