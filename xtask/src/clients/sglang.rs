//! SGLang's nixl backend: its manager, sender, receiver and bootstrap server, a process a rank, on host memory.

use super::{Client, Mode, Packages, Program, both_paths};

const PROGRAM: Program = Program::Shared("sglang_client.py");

/// The kind VRAM, renamed at the edge of `nixl`: SGLang asks for it where a machine without a GPU has none to offer.
const RENAMED: [&str; 3] = ["--mem-kind", "VRAM", "--vram-as-dram"];

/// Seconds that the client program waits for a step: five processes import torch at once, and may have to share two cores.
const PATIENCE: [&str; 2] = ["--timeout", "600"];
/// Seconds that a run may take.
const LIMIT: u64 = 15 * 60;

/// The current release.
pub(super) fn client() -> Client {
    let mode = |name: &str, args: &[&str]| Mode::new(name, PROGRAM).args(&PATIENCE).args(args).limit(LIMIT);
    let renamed = |name: &str, args: &[&str]| mode(name, args).args(&RENAMED);
    let mut modes = both_paths(vec![
        mode("equal-tp", &[]),
        mode(
            "large-pages",
            &[
                "--wave",
                "16",
                "--layers",
                "8",
                "--page-size",
                "64",
                "--prefill-pages",
                "128",
                "--decode-pages",
                "256",
                "--max-pages",
                "16",
            ],
        ),
        renamed("states", &["--states", "swa,dsa,mamba"]),
        renamed("tp2-to-tp1-aborts", &["--prefill-tp", "2", "--abort", "2"]),
        renamed("gqa-tp1-to-tp4", &["--decode-tp", "4", "--heads", "2"]),
        mode("mla-prefix-kill", &["--mla", "--prefill-tp", "2", "--prefix", "--kill-prefill"]),
        renamed("pp2-to-pp1-mla", &["--prefill-pp", "2", "--mla"]),
        renamed("pp2-to-pp1-mha", &["--prefill-pp", "2"]),
    ]);
    modes.push(
        Mode::new("vram-without-driver", Program::Own("sglang_vram.py"))
            .args(&["--clients-dir", "{clients}"]),
    );
    Client {
        name: "sglang",
        title: "SGLang",
        version: "0.5.23",
        packages: vec![Packages::File("sglang-requirements.txt")],
        prepare: None,
        modes,
    }
}

/// What 0.5.16 wants in another version than the current release, or besides.
const OLDER: [&str; 10] = [
    "sglang==0.5.16",
    "transformers==5.12.1",
    "huggingface_hub==1.33.0",
    "tokenizers==0.22.2",
    "httpx==0.28.1",
    "httpcore==1.0.9",
    "distro==1.9.0",
    "jiter==0.19.0",
    "sniffio==1.3.1",
    "xgrammar==0.2.9",
];

/// The last release whose decode side is told by notifications of `nixl`. Its tags do not tell pipeline stages apart, so that a
/// decode rank without stages waits for ever, whoever carries them; and a dummy rank whose pages decode has already asks for a
/// transfer without blocks, which any `nixl` refuses. No mode has stages, and none a dummy rank with prefixes.
pub(super) fn with_notifications() -> Client {
    let mode = |name: &str, args: &[&str]| {
        let mode = Mode::new(name, Program::Own("sglang_notifications.py"));
        mode.variable("PYTHONPATH", "{clients}").args(&PATIENCE).args(args).args(&RENAMED).limit(LIMIT)
    };
    Client {
        name: "sglang-0.5.16",
        title: "SGLang",
        version: "0.5.16",
        packages: vec![Packages::File("sglang-requirements.txt"), Packages::Alone(&OLDER)],
        prepare: None,
        modes: both_paths(vec![
            mode("notifications", &[]),
            mode("notifications-states", &["--states", "swa,dsa,mamba"]),
            mode("notifications-tp2-to-tp1", &["--prefill-tp", "2"]),
            mode("notifications-mla", &["--mla", "--prefill-tp", "2"]),
            mode("notifications-prefix", &["--prefix"]),
        ]),
    }
}
