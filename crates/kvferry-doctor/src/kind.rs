//! The kinds of cause: whose side they are on, how to mend them in each environment, how to verify that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One kind of cause.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Kind {
    /// What it is, half a sentence.
    pub meaning: String,
    /// What happens, sentences.
    pub what: String,
    /// Where it is to be looked for.
    pub side: Place,
    /// Commands and changes on a bare host, most likely first.
    pub bare: Vec<String>,
    /// The same in a Docker container; empty: as on a bare host.
    #[serde(default)]
    pub docker: Vec<String>,
    /// The same in Kubernetes; empty: as in a container.
    #[serde(default)]
    pub k8s: Vec<String>,
    /// How to see that it is mended.
    pub verify: Vec<String>,
}

/// Where a cause is to be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Place {
    /// On the host of the process that logged it.
    Here,
    /// At the other side.
    Peer,
    /// Between the two: they disagree, or the network does.
    Both,
}

impl Place {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Here => "this side: the process that wrote the line, on its own host",
            Self::Peer => "the other side: the peer of the process that wrote the line",
            Self::Both => "between the two sides: compare both",
        }
    }
}

/// Where the process runs, which decides the commands of a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Environment {
    /// No container.
    Bare,
    /// A container by hand.
    Docker,
    /// A pod.
    K8s,
}

impl Environment {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bare, Self::Docker, Self::K8s];

    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bare => "bare metal",
            Self::Docker => "Docker",
            Self::K8s => "Kubernetes",
        }
    }

    /// The environment of this process.
    pub fn detect() -> Self {
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Self::K8s
        } else if ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| std::path::Path::new(mark).exists())
        {
            Self::Docker
        } else {
            Self::Bare
        }
    }
}

impl Kind {
    /// What to do in `environment`.
    pub fn fix(&self, environment: Environment) -> &[String] {
        let given = match environment {
            Environment::Bare => [&self.bare, &self.bare, &self.bare],
            Environment::Docker => [&self.docker, &self.bare, &self.bare],
            Environment::K8s => [&self.k8s, &self.docker, &self.bare],
        };
        given.into_iter().find(|list| !list.is_empty()).map_or(&[], Vec::as_slice)
    }
}

/// All kinds by name.
pub type Kinds = BTreeMap<String, Kind>;
