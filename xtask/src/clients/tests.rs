use tempfile::TempDir;

use super::environment::requirements;
use super::*;

fn client(name: &'static str, modes: &[&str]) -> Client {
    Client {
        name,
        title: "Client",
        version: "1.0",
        packages: vec![],
        prepare: None,
        modes: modes.iter().map(|mode| Mode::new(mode, Program::Shared("loop.py"))).collect(),
    }
}

fn chosen(names: &[&str]) -> Result<Vec<String>, String> {
    let known = vec![client("one", &["plain", "tcp"]), client("two", &["plain"])];
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let chosen = choose(known, &names).map_err(|error| error.to_string())?;
    let modes = |client: &Client| {
        let name = client.name;
        client.modes.iter().map(|mode| format!("{name}/{}", mode.name)).collect::<Vec<_>>()
    };
    Ok(chosen.iter().flat_map(modes).collect())
}

#[test]
fn clients_and_modes_are_chosen_by_name() {
    assert_eq!(chosen(&[]).expect("all"), ["one/plain", "one/tcp", "two/plain"]);
    assert_eq!(chosen(&["two", "one/tcp"]).expect("some"), ["one/tcp", "two/plain"]);
    assert_eq!(chosen(&["one", "one/tcp"]).expect("one"), ["one/plain", "one/tcp"]);
    assert_eq!(chosen(&["three"]), Err("no client is called \"three\"; there are one, two".to_owned()));
    assert_eq!(chosen(&["one/udp"]), Err("one has no mode \"udp\"; there are plain, tcp".to_owned()));
}

#[test]
fn names_are_unique_and_can_be_files() {
    let mut names = BTreeSet::new();
    for client in all() {
        let plain = |name: &str| {
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
        };
        assert!(plain(client.name) && names.insert(client.name.to_owned()), "{}", client.name);
        for mode in &client.modes {
            let name = format!("{}/{}", client.name, mode.name);
            assert!(plain(&mode.name) && names.insert(name.clone()), "{name}");
        }
    }
}

#[test]
fn programs_of_the_project_are_there() {
    let root = Workspace::find().root;
    for client in all() {
        for mode in client.modes {
            if let Program::Own(name) = mode.program {
                assert!(root.join("python/clients").join(name).is_file(), "{} needs {name}", client.name);
            }
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    let dir = TempDir::new().expect("directory");
    let workspace = Workspace { root: dir.path().join("project"), target: dir.path().join("target") };
    fs::create_dir(&workspace.root).expect("project");
    let found = |given: Option<&Path>| {
        let mut known = vec![client("one", &["plain"])];
        known[0].packages.push(Packages::File("needs.txt"));
        clients_dir(&workspace, given, &known).map_err(|error| format!("{error:#}"))
    };
    let error = found(None).expect_err("no directory");
    assert!(error.contains("project/../shared/clients") && error.contains("--clients-dir"), "{error}");

    let beside = dir.path().join("shared/clients");
    fs::create_dir_all(&beside).expect("clients");
    for file in ["needs.txt", "loop.py"] {
        let error = found(None).expect_err(file);
        assert!(error.contains(&format!("one needs {}", beside.join(file).display())), "{error}");
        fs::write(beside.join(file), "").expect(file);
    }
    assert_eq!(found(None).expect("all there"), beside.canonicalize().expect("path"));
    assert_eq!(found(Some(&beside)).expect("given"), beside.canonicalize().expect("path"));
    assert!(found(Some(dir.path())).expect_err("elsewhere").contains("needs.txt"));
}

#[test]
fn a_mode_is_followed_by_itself_over_tcp() {
    let modes = both_paths(client("one", &["a", "b"]).modes);
    assert_eq!(modes.iter().map(|mode| mode.name.as_str()).collect::<Vec<_>>(), ["a", "a-tcp", "b", "b-tcp"]);
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    assert_eq!((modes[0].ours.len(), modes[0].stock.len()), (0, 0));
    assert_eq!(modes[1].ours, pair("KVFERRY_FORBID", "same_host"));
    assert_eq!(modes[1].stock, pair("UCX_TLS", "tcp,self"));
}

#[test]
fn a_requirements_file_brings_no_nixl() {
    let text = "# pinned\nnumpy==2.4.6\nnixl==1.5.1\nnixl_cu12 == 1.5.1  # both\n\nNIXL-cu13==1.5.1\nnixlike==1 # other\n";
    assert_eq!(requirements(text), ["numpy==2.4.6", "nixlike==1"]);
}

#[test]
fn the_list_shows_what_can_be_named() {
    assert_eq!(list(&[client("one", &["plain", "tcp"])]), "Client 1.0\n  one/plain\n  one/tcp\n");
}
