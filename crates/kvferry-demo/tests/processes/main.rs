//! The demo's program as a user runs it.

mod death;
mod hosts;
mod misuse;
mod run;
mod smollm2;
mod split;
