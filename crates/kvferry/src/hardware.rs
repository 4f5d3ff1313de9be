//! Hardware that would be a better way than the ones this build has.

use std::{fs, path::Path};

use crate::path::WhyNot;

/// What lies idle on the machine whose file systems are mounted under `root`: active RDMA ports and GPUs.
pub(crate) fn unused(root: &Path) -> Vec<WhyNot> {
    let mut idle = Vec::new();
    let ports = active_ports(&root.join("sys/class/infiniband"));
    if !ports.is_empty() {
        let reason =
            format!("RDMA port {} is active, and this build has no RDMA transport", ports.join(", "));
        idle.push(WhyNot { way: "rdma", reason });
    }
    let gpus = names(&root.join("proc/driver/nvidia/gpus")).len();
    if gpus > 0 {
        let reason = format!("{gpus} GPU(s) are visible, and this build does not reach GPU memory");
        idle.push(WhyNot { way: "cuda_ipc", reason });
    }
    idle
}

/// The active ports, as `device/port`.
fn active_ports(devices: &Path) -> Vec<String> {
    let mut active = Vec::new();
    for device in names(devices) {
        let ports = devices.join(&device).join("ports");
        for port in names(&ports) {
            let state = fs::read_to_string(ports.join(&port).join("state")).unwrap_or_default();
            if state.contains("ACTIVE") {
                active.push(format!("{device}/{port}"));
            }
        }
    }
    active
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
