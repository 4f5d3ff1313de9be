//! Memory is handed back only when it is quiet: after a cancel, a release, a deregistration or a disconnect that says Ok, not a
//! byte of a transfer moves any more.

mod early;
mod paused;
mod rig;
mod rounds;
mod slow_page;

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");
