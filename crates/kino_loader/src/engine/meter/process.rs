//! The memory of this process, if the system reports it.

/// Resident bytes now and at their peak, from `/proc`; `None` if unavailable.
pub(super) fn resident_bytes() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some((field(&status, "VmRSS:")?, field(&status, "VmHWM:")?))
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_in_kib() {
        let status = "Name:\tpython\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(field(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(field(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(field(status, "VmSwap:"), None);
        assert_eq!(field("VmRSS: many kB", "VmRSS:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_resident_memory() {
        let (now, most) = resident_bytes().unwrap();
        assert!(now > 0 && now <= most);
    }
}
