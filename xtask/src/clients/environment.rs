//! A client's environment: made once, with kvferry's wheels put in anew each time, or with the stock package.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Client, OWN, Owner, Packages};
use crate::process;
use crate::wheel::{self, Wheels};
use crate::workspace::Workspace;

/// What installs: its cache keeps one copy of a file for all environments, and the clients take gigabytes.
const UV: &str = "uv==0.13.8";
/// The stock package: what decides, and both of which it may choose.
const STOCK: [&str; 3] = ["nixl==1.5.1", "nixl-cu12==1.5.1", "nixl-cu13==1.5.1"];
/// Longest that one installation may take: gigabytes over a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(60 * 60);
/// Longest that Python may take to say whose `nixl` it has.
const ASK_LIMIT: Duration = Duration::from_secs(120);

/// Where one client's runs with one `nixl` take place.
pub(crate) struct Setup<'a> {
    workspace: &'a Workspace,
    /// The clients' directory.
    clients: PathBuf,
    /// `target/clients/NAME`.
    dir: PathBuf,
    owner: Owner,
}

impl<'a> Setup<'a> {
    pub(super) fn new(workspace: &'a Workspace, client: &Client, clients: &Path, owner: Owner) -> Self {
        let dir = workspace.target.join("clients").join(client.name);
        Self { workspace, clients: clients.to_path_buf(), dir, owner }
    }

    pub(super) fn workspace(&self) -> &'a Workspace {
        self.workspace
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// The clients' directory.
    pub(crate) fn clients(&self) -> &Path {
        &self.clients
    }

    /// The virtual environment.
    pub(crate) fn environment(&self) -> PathBuf {
        self.dir.join(self.owner.name())
    }

    /// Its interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        self.environment().join("bin/python")
    }

    /// Where its packages lie.
    ///
    /// # Errors
    /// Its Python can't be asked.
    #[allow(dead_code, reason = "for what a client has to prepare")]
    pub(crate) fn site_packages(&self) -> Result<PathBuf> {
        self.ask("import sysconfig; print(sysconfig.get_path('purelib'))").map(PathBuf::from)
    }

    /// The log of a mode's run.
    pub(super) fn log(&self, mode: &str) -> PathBuf {
        let kind = if self.owner == Owner::Stock { ".stock" } else { "" };
        self.dir.join("logs").join(format!("{mode}{kind}.log"))
    }

    /// The directory where a mode runs, empty.
    ///
    /// # Errors
    /// It can't be emptied or made.
    pub(super) fn work(&self, mode: &str) -> Result<PathBuf> {
        let work = self.dir.join("work").join(mode);
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).with_context(|| format!("can't make {}", work.display()))?;
        Ok(work)
    }

    /// A text with the places put in for their names.
    pub(super) fn fill(&self, text: &str, work: &Path) -> String {
        let places = [
            ("{clients}", self.clients.as_path()),
            ("{environment}", &self.environment()),
            ("{root}", &self.workspace.root),
            ("{work}", work),
        ];
        places.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, &path.to_string_lossy()))
    }

    /// Makes the environment if it is not there or not as the client wants it, and puts the right `nixl` in.
    ///
    /// # Errors
    /// A package is not to be had, or another `nixl` than wanted answers in the end.
    pub(super) fn make(&self, client: &Client, wheels: &Wheels) -> Result<()> {
        let (stamp, wanted) = (self.environment().join("made-of"), self.recipe(client)?);
        if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
            println!("-- {}: the environment {} is there", client.name, self.environment().display());
        } else {
            println!("-- {}: making the environment {}", client.name, self.environment().display());
            wheel::environment(&self.environment())?;
            for packages in &client.packages {
                self.install(packages)?;
            }
            if self.owner == Owner::Stock {
                self.install(&Packages::Alone(&STOCK))?;
            }
            if let Some(prepare) = client.prepare {
                (prepare.run)(self)?;
            }
            fs::write(&stamp, wanted).with_context(|| format!("can't write {}", stamp.display()))?;
        }
        if self.owner == Owner::Ours {
            // Copies of their own, not links into the cache: whoever tries something out in an environment's files must not
            // change another's.
            let ours = [
                "--quiet",
                "--no-cache",
                "--link-mode=copy",
                "--reinstall-package=kvferry",
                "--reinstall-package=kvferry-nixl",
            ]
            .map(OsStr::new);
            self.uv(&[&ours[..], &[wheels.native.as_os_str(), wheels.nixl.as_os_str()]].concat())?;
        }
        let owner = self.ask("import nixl; print(getattr(nixl, '__kvferry__', False), nixl.__file__)")?;
        ensure!(
            owner.starts_with("True ") == (self.owner == Owner::Ours),
            "another nixl than {}'s answers: {owner}",
            self.owner.name()
        );
        Ok(())
    }

    /// Installs packages; those of nixl that a file of the clients' directory names are left out.
    ///
    /// # Errors
    /// One is not to be had.
    pub(crate) fn install(&self, packages: &Packages) -> Result<()> {
        let lines = self.lines(packages)?;
        let alone = if matches!(packages, Packages::Whole(_)) { None } else { Some(OsStr::new("--no-deps")) };
        let lines = lines.iter().map(OsStr::new);
        self.uv(&alone.into_iter().chain(lines).collect::<Vec<_>>())
    }

    /// The first line that a script of Python's prints in this environment.
    ///
    /// # Errors
    /// It ends badly or prints nothing.
    pub(crate) fn ask(&self, script: &str) -> Result<String> {
        let mut python = Command::new(self.python());
        self.workspace.clean(&mut python);
        python.args(["-c", script]);
        let finished = process::run_with(&mut python, ASK_LIMIT, |_| ()).context("can't run Python")?;
        ensure!(
            finished.status.success(),
            "Python ended with {}: {}",
            finished.status,
            finished.output.join("\n")
        );
        finished.stdout.into_iter().next().context("Python printed nothing")
    }

    fn uv(&self, args: &[&OsStr]) -> Result<()> {
        let tool = self.workspace.target.join("clients/uv");
        let stamp = tool.join("version");
        if fs::read_to_string(&stamp).ok().as_deref() != Some(UV) {
            let programs = wheel::environment(&tool)?;
            wheel::install(&programs, &[UV])?;
            fs::write(&stamp, UV).with_context(|| format!("can't write {}", stamp.display()))?;
        }
        let mut uv = Command::new(tool.join("bin/uv"));
        uv.args(["pip", "install", "--no-progress", "--python"]).arg(self.python()).args(args);
        for (name, value) in
            [("UV_LINK_MODE", "hardlink"), ("UV_SYSTEM_CERTS", "1"), ("UV_HTTP_TIMEOUT", "300")]
        {
            if env::var_os(name).is_none() {
                uv.env(name, value);
            }
        }
        wheel::run(&mut uv, "uv pip install", INSTALL_LIMIT)
    }

    fn lines(&self, packages: &Packages) -> Result<Vec<String>> {
        Ok(match packages {
            Packages::File(name) => requirements_in(&self.clients.join(name))?,
            Packages::OwnFile(name) => requirements_in(&self.workspace.root.join(OWN).join(name))?,
            Packages::Alone(list) | Packages::Whole(list) => {
                list.iter().map(|line| (*line).to_owned()).collect()
            }
        })
    }

    /// What the environment is made of, as a text to compare.
    fn recipe(&self, client: &Client) -> Result<String> {
        let mut recipe = String::new();
        for packages in &client.packages {
            recipe +=
                if matches!(packages, Packages::Whole(_)) { "with dependencies:\n" } else { "alone:\n" };
            recipe += &self.lines(packages)?.join("\n");
            recipe.push('\n');
        }
        if self.owner == Owner::Stock {
            recipe += &STOCK.join("\n");
        }
        if let Some(prepare) = client.prepare {
            recipe += &format!("\nrevision {}", prepare.revision);
        }
        Ok(recipe)
    }
}

fn requirements_in(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    Ok(requirements(&text))
}

/// The lines of a requirements file, but none of a `nixl`: which one is there is not the file's to say.
pub(super) fn requirements(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let end =
            line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(line.len());
        line[..end].to_ascii_lowercase().replace('_', "-")
    };
    text.lines()
        .map(|line| line.split(" #").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|line| !["nixl", "nixl-cu12", "nixl-cu13"].contains(&name(line).as_str()))
        .map(str::to_owned)
        .collect()
}
