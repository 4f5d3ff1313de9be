use tempfile::TempDir;

use super::*;

const README: &str = "# Ferry\n```sh\ncargo xtask demo   # moves it\n$ cargo xtask test\n```\nSee [docs](docs/README.md#top), \
[elsewhere](https://example.org/a.md), [above](#ferry), <img src=\"docs/flow.svg\">.\n";

fn checked(files: &[(&str, &str)]) -> Outcome {
    let dir = TempDir::new().expect("directory");
    fs::create_dir(dir.path().join("docs")).expect("docs");
    let usual = [
        ("README.md", README),
        ("docs/README.md", "[flow](flow.md)\n"),
        ("docs/flow.md", "Proven by [`agent::it_flows`](../flow.rs).\n"),
        ("docs/flow.svg", "<svg/>"),
        ("flow.rs", "fn it_flows() {}\n"),
    ];
    for (name, text) in usual.iter().chain(files) {
        fs::write(dir.path().join(name), text).expect("page");
    }
    check(dir.path()).expect("check")
}

#[test]
fn true_pages_pass() {
    assert_eq!(checked(&[]), Outcome::passed(3));
}

#[test]
fn what_is_no_longer_true_is_found() {
    let failed = |name, text: &str| checked(&[(name, text)]).failed;
    assert_eq!(
        failed("README.md", &README.replace("xtask test", "xtask tset")),
        [
            "README.md: line 4: `cargo xtask tset` is refused: unrecognized subcommand",
            "README.md: no code block shows `cargo xtask test`"
        ]
    );
    assert_eq!(
        failed("README.md", &README.replace("docs/flow.svg", "docs/gone.svg")),
        ["README.md: line 6: docs/gone.svg does not exist"]
    );
    assert_eq!(
        failed("flow.rs", "fn it_flows_on() {}\n"),
        ["docs/flow.md: line 1: no `fn it_flows` in ../flow.rs"]
    );
    let quoted = |code: &str| failed("docs/flow.md", &format!("```rust file=flow.rs\n{code}\n```\n"));
    assert_eq!(quoted("fn it_flows() {}"), [""; 0]);
    assert_eq!(quoted("fn it_flowed() {}"), ["docs/flow.md: the quoted flow.rs is not what the file holds"]);
    assert_eq!(failed("docs/README.md", "# Pages\n"), ["docs/README.md: flow.md is not listed"]);
}

#[test]
fn commands_are_parsed_as_the_task_would() {
    assert_eq!(parse_command("cargo xtask demo --tokens 8 --json"), Ok(()));
    assert_eq!(parse_command("cargo xtask soak --minutes 30 --markdown FILE"), Ok(()));
    assert_eq!(parse_command("cargo xtask test loom docs # two groups"), Ok(()));
    assert_eq!(parse_command("cargo build"), Ok(()));
    let unknown = parse_command("cargo xtask test everything").expect_err("unknown group");
    assert!(unknown.contains("everything"), "{unknown}");
}
