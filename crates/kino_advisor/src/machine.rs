//! The machine that something was measured on: what a reader of the figures has to know.

use kino_dataset::cpu_name;
use serde::{Deserialize, Serialize};

/// A machine, in words and numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name and cores.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of memory; 0 where nobody says.
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

/// Processes that wanted to run in the last minute, on the average; 0 where nobody counts.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Bytes of memory; 0 where nobody says.
pub(crate) fn memory_bytes() -> u64 {
    kilobytes("/proc/meminfo", "MemTotal:").map_or(0, |kib| kib * 1024)
}

/// The most memory that this process held, since it began or since [`forget_peak`]; `None` where nobody counts.
pub(crate) fn peak_bytes() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM:").map(|kib| kib * 1024)
}

/// Counts the peak of memory from here on, where the system can.
pub(crate) fn forget_peak() {
    // A system that cannot counts from the start of the process, which is an upper bound.
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Seconds of CPU time of all threads of this process; `None` where nobody counts.
#[cfg(unix)]
pub(crate) fn cpu_s() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    Some(std::time::Duration::new(seconds, nanos).as_secs_f64())
}

/// Seconds of CPU time of all threads of this process; `None` where nobody counts.
#[cfg(not(unix))]
pub(crate) fn cpu_s() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_what_it_is() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && !machine.cpu.is_empty());
        assert!(machine.system.starts_with(std::env::consts::OS));
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_counts_memory_and_time() {
        assert!(memory_bytes() > 1 << 20);
        forget_peak();
        assert!(peak_bytes().unwrap() > 1 << 16);
        assert!(cpu_s().unwrap() > 0.0);
    }
}
