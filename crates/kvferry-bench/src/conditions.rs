use std::fmt;
use std::fs;
use std::thread;

/// The machine and how busy it was: figures without them mean little.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// When private memory is put on huge pages.
    pub huge_pages: String,
    /// Processes that wanted to run, a minute's average, before and after.
    pub load: (f64, f64),
}

impl Conditions {
    /// Those of this machine, now.
    pub fn of_this_machine() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let kibibytes =
            field(&meminfo, "MemTotal").and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
        let huge_pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = huge_pages.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or("unknown processor").to_owned(),
            processors: thread::available_parallelism().map_or(1, |count| count.get()),
            memory: kibibytes.unwrap_or_default() << 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            huge_pages: chosen.map_or("unknown", |(chosen, _)| chosen).to_owned(),
            load: (load(), 0.0),
        }
    }

    /// Notes how busy the machine is after the run.
    pub(crate) fn finish(&mut self) {
        self.load.1 = load();
    }

    /// Whether other work was going on when the run began, so that only the ratios mean something.
    pub fn is_busy(&self) -> bool {
        self.load.0 > self.processors as f64 / 4.0
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} x {}, {} GiB, Linux {}, huge pages {}, load {:.1} before and {:.1} after",
            self.processors,
            self.processor,
            (self.memory + (1 << 29)) >> 30,
            self.kernel,
            self.huge_pages,
            self.load.0,
            self.load.1,
        )?;
        if self.is_busy() {
            f.write_str("; the machine was busy before: trust the ratios, not the figures")?;
        }
        Ok(())
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, v)| v.trim())
}

fn load() -> f64 {
    read("/proc/loadavg").split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_describe_this_machine() {
        let conditions = Conditions::of_this_machine();
        assert!(conditions.processors > 0 && conditions.memory > 1 << 28, "{conditions:?}");
        assert!(!conditions.kernel.is_empty() && !conditions.kernel.contains('\n'), "{conditions:?}");
        assert!(conditions.load.0 >= 0.0);
    }

    #[test]
    fn a_busy_machine_is_said_to_be_one() {
        let mut conditions = Conditions { processors: 2, load: (0.4, 2.0), ..Conditions::default() };
        assert!(!conditions.to_string().contains("busy"));
        conditions.load.0 = 1.5;
        assert!(conditions.to_string().contains("trust the ratios"));
    }
}
