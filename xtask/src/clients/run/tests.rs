use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A project whose client's Python is a shell, and a program of that client.
fn project(script: &str) -> (TempDir, Workspace, Client) {
    let dir = TempDir::new().expect("directory");
    let workspace = Workspace { root: dir.path().to_path_buf(), target: dir.path().join("target") };
    let programs = dir.path().join("python/clients");
    fs::create_dir_all(&programs).expect("programs");
    fs::write(programs.join("loop.py"), script).expect("program");
    for owner in ["kvferry", "stock"] {
        let bin = workspace.target.join("clients/one").join(owner).join("bin");
        fs::create_dir_all(&bin).expect("environment");
        symlink("/bin/sh", bin.join("python")).expect("python");
    }
    let mode = Mode::new("plain", Program::Own("loop.py")).args(&["{work}/in"]);
    let modes = super::super::both_paths(vec![mode]);
    let client = Client { name: "one", title: "One", version: "1", packages: vec![], prepare: None, modes };
    (dir, workspace, client)
}

fn outcome(script: &str, mode: usize, owner: Owner) -> (Verdict, String) {
    let (dir, workspace, mut client) = project(script);
    client.modes[mode].limit = Duration::from_secs(2);
    let setup = Setup::new(&workspace, &client, dir.path(), owner);
    let (verdict, _) = run(&setup, &client, &client.modes[mode]).expect("run");
    (verdict, fs::read_to_string(setup.log(&client.modes[mode].name)).expect("log"))
}

fn verdict(script: &str, owner: Owner) -> Verdict {
    outcome(script, 0, owner).0
}

fn failed(why: &str) -> Verdict {
    Verdict::Failed(why.to_owned())
}

#[test]
fn the_line_decides_and_with_kvferry_the_code_too() {
    for owner in [Owner::Ours, Owner::Stock] {
        assert_eq!(verdict("echo RESULT PASS", owner), Verdict::Passed);
        assert_eq!(verdict("echo RESULT FAIL: no page", owner), failed("FAIL: no page"));
        assert_eq!(
            verdict("echo the RESULT PASS was not", owner),
            failed("no verdict, ended with exit status: 0")
        );
        assert_eq!(
            verdict("echo RESULT PASS >&2; exit 4", owner),
            failed("no verdict, ended with exit status: 4")
        );
        assert_eq!(verdict("echo RESULT SKIP: no GPU", owner), Verdict::NotRun("no GPU".to_owned()));
        assert_eq!(verdict("echo RESULT PASS; sleep 60", owner), failed("killed: it took too long"));
    }
    let crash = "echo RESULT PASS; kill -SEGV $$";
    assert_eq!(verdict(crash, Owner::Stock), Verdict::Passed);
    assert_eq!(verdict("echo RESULT SKIP: no GPU; exit 1", Owner::Ours), failed("SKIP: no GPU"));
    let Verdict::Failed(why) = verdict(crash, Owner::Ours) else { panic!("a crash passed") };
    assert!(why.starts_with("its work was good, but it ended with signal: 11"), "{why}");
}

#[test]
fn a_run_meets_its_owners_variables_and_its_own_directory() {
    let script = "echo $1 $KVFERRY_FORBID/$UCX_TLS $TMPDIR; pwd; ls | wc -l; touch here; echo RESULT PASS";
    for (owner, mode, seen) in [
        (Owner::Ours, 0, "/"),
        (Owner::Stock, 0, "/"),
        (Owner::Ours, 1, "same_host/"),
        (Owner::Stock, 1, "/tcp,self"),
    ] {
        let (verdict, log) = outcome(script, mode, owner);
        assert_eq!(verdict, Verdict::Passed, "{log}");
        let lines: Vec<_> = log.lines().collect();
        let (first, work) = lines[1].rsplit_once(' ').expect("words");
        assert_eq!(first, format!("{work}/in {seen}"));
        assert_eq!(lines[2], work);
        assert_eq!(lines[3].trim(), "0", "the directory is not empty");
        assert!(lines[5].starts_with("ended with exit status: 0 after "), "{}", lines[5]);
    }
}
