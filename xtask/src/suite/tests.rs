use std::process::Command;
use std::time::Duration;

use anyhow::bail;

use super::*;
use crate::process;

fn groups() -> Vec<Group> {
    fn shell(script: &str) -> Result<Outcome> {
        let command = &mut Command::new("sh");
        command.arg("-c").arg(script);
        let finished = process::run(command, Duration::from_secs(30))?;
        Ok(if finished.status.success() { Outcome::passed(1) } else { Outcome::failed("sh") })
    }
    vec![
        Group { name: "broken", about: "can't even start", run: |_| bail!("no such tool") },
        Group { name: "false", about: "fails", run: |_| shell("exit 1") },
        Group { name: "true", about: "passes", run: |_| shell("exit 0") },
    ]
}

#[test]
fn a_failing_group_does_not_stop_the_others() {
    let rows = run_groups(&Workspace::find(), &groups());
    let counts: Vec<_> =
        rows.iter().map(|(name, outcome, _)| (*name, outcome.passed, outcome.failed.len())).collect();
    assert_eq!(counts, [("broken", 0, 1), ("false", 0, 1), ("true", 1, 0)]);
    assert!(report::render(&rows).ends_with("\n1 passed, 2 failed\n"));
}

#[test]
fn groups_are_chosen_by_name() {
    let names = |wanted: &[&str]| {
        let wanted: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
        choose(groups(), &wanted)
            .map(|chosen| chosen.iter().map(|group| group.name).collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    };
    assert_eq!(names(&[]).expect("all"), ["broken", "false", "true"]);
    assert_eq!(names(&["true", "broken"]).expect("two"), ["broken", "true"]);
    let error = names(&["ture"]).expect_err("unknown");
    assert!(error.contains("\"ture\"") && error.contains("broken, false, true"), "{error}");
    assert!(list(&groups()).contains("false       fails\n"));
}
