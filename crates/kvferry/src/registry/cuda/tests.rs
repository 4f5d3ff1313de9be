use std::ffi::OsString;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of this test's own, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kvferry-cuda-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn all_places_are_named_in_the_order_of_the_loader() {
    let scratch = Scratch::new();
    scratch.directory("conf.d");
    scratch.file("conf.d/b.conf", "/from/b # a comment\n");
    scratch.file("conf.d/a.conf", "# nothing\n/from/a\n\nrelative/is/ignored\n");
    scratch.file("conf.d/c.txt", "/not/included\n");
    let conf = scratch.file("ld.so.conf", "/first\ninclude conf.d/*.conf\ninclude missing.conf\n");
    let variable = OsString::from("/one::/two;/one");
    let places = search(&variable, &conf, &["/usual", "/two"]).expect_err("no driver there");
    let places: Vec<&str> = places.iter().filter_map(|place| place.to_str()).collect();
    assert_eq!(places, ["/one", "/two", "/first", "/from/a", "/from/b", "/usual"]);
}

#[test]
fn the_first_library_found_wins() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.directory("one"), scratch.directory("two"));
    scratch.file("two/libcuda.so.1", "");
    let conf = scratch.file("ld.so.conf", &format!("{}\n", two.display()));
    assert_eq!(search(one.as_os_str(), &conf, &[]), Ok(two.join("libcuda.so.1")));
    scratch.file("one/libcuda.so.1", "");
    assert_eq!(search(one.as_os_str(), &conf, &[]), Ok(one.join("libcuda.so.1")));
}

#[test]
fn a_configuration_that_includes_itself_ends() {
    let scratch = Scratch::new();
    let conf = scratch.file("ld.so.conf", "/here\ninclude ld.so.conf\n");
    let places = search(OsStr::new(""), &conf, &[]).expect_err("no driver there");
    assert_eq!(*places, [PathBuf::from("/here")]);
}
