//! Starting workers.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Confinement, Request, Worker};

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Launch {
    program: PathBuf,
    name: String,
    env: Vec<(String, String)>,
    confinement: Confinement,
}

impl Launch {
    /// A worker of that name (its agent will have it too), run by `program`, with the settings' defaults.
    pub fn new(program: impl AsRef<Path>, name: &str) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            name: name.to_owned(),
            env: Vec::new(),
            confinement: Confinement::default(),
        }
    }

    /// Sets a variable of its environment, such as `KVFERRY_THREADS`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives up rights before the agent is built.
    #[must_use]
    pub fn confined(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// Starts it. It has no agent yet.
    ///
    /// # Errors
    /// The machine does not allow the confinement: why.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn try_start(&self) -> Result<Worker, String> {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("KVFERRY_") && name != "KVFERRY_LOG")
        {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        // SAFETY: between fork and exec only this one system call.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.program.display()));
        let worker = Worker::new(&self.name, child);
        if self.confinement != Confinement::default() {
            let request = Request::Confine(self.confinement.clone());
            worker.ask::<()>(&request).map_err(|failure| failure.text)?;
        }
        Ok(worker)
    }

    /// Starts it and builds its agent.
    ///
    /// # Panics
    /// Any of it fails.
    pub fn start(&self) -> Worker {
        let worker = self.try_start().unwrap_or_else(|why| panic!("worker {:?}: {why}", self.name));
        worker.build();
        worker
    }
}
