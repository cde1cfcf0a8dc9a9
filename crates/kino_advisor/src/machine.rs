//! The machine that figures were measured on, so that a reader can judge them.

use kino_dataset::cpu_name;
use serde::{Deserialize, Serialize};

/// A machine: its CPU, memory and software.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name and cores.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of memory; 0 if unknown.
    pub memory_bytes: u64,
    /// The operating system and its version.
    pub system: String,
    /// The version of this library.
    pub kinograph: String,
}

impl Machine {
    /// The machine that this runs on.
    pub fn here() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: cpu_name(),
            cores: cores(),
            memory_bytes: memory_bytes(),
            system: format!("{} {}", std::env::consts::OS, release.trim())
                .trim_end()
                .to_owned(),
            kinograph: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Average number of runnable processes over the last minute; 0 if unknown.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Bytes of memory; 0 if unknown.
pub(crate) fn memory_bytes() -> u64 {
    kilobytes("/proc/meminfo", "MemTotal:").map_or(0, |kib| kib * 1024)
}

/// Peak memory of this process, since it started or since [`reset_peak`]; `None` if unknown.
pub(crate) fn peak_bytes() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM:").map(|kib| kib * 1024)
}

/// Restarts the peak memory count, where the system supports it.
pub(crate) fn reset_peak() {
    // Elsewhere the count starts with the process, which gives an upper bound.
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// CPU seconds of all threads of this process; `None` if unknown.
#[cfg(unix)]
pub(crate) fn cpu_s() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    Some(std::time::Duration::new(seconds, nanos).as_secs_f64())
}

/// CPU seconds of all threads of this process; `None` if unknown.
#[cfg(not(unix))]
pub(crate) fn cpu_s() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_describes_itself_and_survives_json() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && !machine.cpu.is_empty());
        assert!(machine.system.starts_with(std::env::consts::OS));
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_reports_memory_and_cpu_time() {
        assert!(memory_bytes() > 1 << 20);
        reset_peak();
        assert!(peak_bytes().unwrap() > 1 << 16);
        assert!(cpu_s().unwrap() > 0.0);
    }
}
