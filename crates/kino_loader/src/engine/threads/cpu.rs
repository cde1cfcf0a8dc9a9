//! The CPU share: how many threads a loader may have, and how much CPU time they may use.
//!
//! ```text
//! credit ▲  ╱╲    ╱╲      accrues at `cores` seconds per second; is spent as CPU time of the threads
//!        │ ╱  ╲  ╱  ╲
//!      0 └╱────╲╱────╲──▶ below zero, a thread sleeps before its next task
//! ```
//!
//! A host whose cores are all busy launches kernels late, and the accelerator waits. So by default one core is left
//! free. A share that is not a whole number of cores is enforced by sleeping between tasks, never inside one.

use std::str::FromStr;
use std::time::{Duration, Instant};

use kino_sync::Mutex;
use serde::{Deserialize, Serialize};

/// A share of the machine. In JSON a number counts cores, and text such as `"50%"` is a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum CpuShare {
    /// A number of cores, such as 2.5.
    Cores(f64),
    /// A fraction of the cores that this process may use.
    Fraction(f64),
}

/// A share as written in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Cores(f64),
    Text(String),
}

impl TryFrom<Written> for CpuShare {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Cores(cores) => Ok(Self::Cores(cores)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<CpuShare> for Written {
    fn from(share: CpuShare) -> Self {
        match share {
            CpuShare::Cores(cores) => Self::Cores(cores),
            CpuShare::Fraction(fraction) => Self::Text(format!("{}%", fraction * 100.0)),
        }
    }
}

impl FromStr for CpuShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .map(|percent: f64| Self::Fraction(percent / 100.0)),
            None => text.trim().parse().map(Self::Cores),
        };
        share.map_err(|_| {
            format!(
                "`{text}` is not a CPU share; use a number of cores such as 2.5, or a percentage such as 50%"
            )
        })
    }
}

impl CpuShare {
    /// In cores; at most those available.
    pub fn cores(self) -> f64 {
        let available = available() as f64;
        match self {
            Self::Cores(cores) => cores.min(available),
            Self::Fraction(fraction) => fraction * available,
        }
    }

    /// The number of threads that can use it.
    pub fn threads(self) -> usize {
        let cores = self.cores();
        (1..available())
            .find(|&count| count as f64 >= cores)
            .unwrap_or(available())
    }
}

/// The default number of decode threads: all cores but one, which the training loop needs to launch kernels.
pub(crate) fn default_threads() -> usize {
    available().saturating_sub(1).max(1)
}

/// Cores that this process may use, limited by its affinity and its cgroup quota.
fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Credit that can be saved up, per core: one burst is cheaper than many short sleeps.
const BURST: Duration = Duration::from_millis(20);

/// The longest single sleep: a loader that stops waits for it.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Limits the CPU time of a loader's threads to a number of cores.
#[derive(Debug)]
pub(crate) struct Limit {
    started: Instant,
    credit: Mutex<Credit>,
}

impl Limit {
    /// `None` if the threads cannot exceed the share anyway.
    pub(crate) fn new(share: Option<CpuShare>, threads: usize) -> Option<Self> {
        let cores = share?.cores();
        (cores < threads as f64).then(|| Self {
            started: Instant::now(),
            credit: Mutex::new(Credit::new(cores)),
        })
    }

    /// Spends CPU time; returns how long to sleep before the next task.
    fn spend(&self, used: Duration) -> Duration {
        let mut credit = self.credit.lock();
        credit.spend(self.started.elapsed(), used)
    }
}

/// One thread's account with a [`Limit`].
#[derive(Debug)]
pub(crate) struct Account<'l> {
    limit: Option<&'l Limit>,
    counted: Duration,
}

impl<'l> Account<'l> {
    /// The account of the calling thread.
    pub(crate) fn new(limit: Option<&'l Limit>) -> Self {
        Self {
            limit,
            counted: thread_time(),
        }
    }

    /// Pays for the CPU time used since the last call, then sleeps until there is credit.
    pub(crate) fn settle(&mut self, is_stopped: impl Fn() -> bool) {
        let Some(limit) = self.limit else {
            return;
        };
        let now = thread_time();
        let mut used = now.saturating_sub(self.counted);
        self.counted = now;
        loop {
            let sleep = limit.spend(used);
            if sleep.is_zero() || is_stopped() {
                return;
            }
            std::thread::sleep(sleep.min(MAX_SLEEP));
            used = Duration::ZERO;
        }
    }
}

/// CPU time of the calling thread.
#[cfg(unix)]
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Without a per-thread CPU clock: the wall time since the thread's first call, an upper bound.
#[cfg(not(unix))]
fn thread_time() -> Duration {
    thread_local! {
        static STARTED: Instant = Instant::now();
    }
    STARTED.with(Instant::elapsed)
}

/// CPU seconds that may be used.
#[derive(Debug)]
struct Credit {
    cores: f64,
    seconds: f64,
    at: Duration,
}

impl Credit {
    fn new(cores: f64) -> Self {
        Self {
            cores,
            seconds: cores * BURST.as_secs_f64(),
            at: Duration::ZERO,
        }
    }

    fn spend(&mut self, now: Duration, used: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        // Unused credit beyond a burst expires: the share applies to the present, not to the run's average.
        let most = self.cores * BURST.as_secs_f64();
        self.seconds = (self.seconds + passed * self.cores).min(most) - used.as_secs_f64();
        let missing = (-self.seconds).max(0.0) / self.cores.max(1e-3);
        Duration::try_from_secs_f64(missing).unwrap_or(MAX_SLEEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_threads_as_can_use_the_share_but_no_more_than_cores() {
        let all = available();
        assert_eq!(CpuShare::Cores(0.3).threads(), 1);
        assert_eq!(CpuShare::Cores(1.0).threads(), 1);
        assert_eq!(CpuShare::Cores(1.5).threads(), 2.min(all));
        assert_eq!(CpuShare::Cores(1e9).threads(), all);
        assert_eq!(CpuShare::Fraction(1.0).threads(), all);
        assert_eq!(default_threads(), (all - 1).max(1));
        assert!(
            Limit::new(None, 3).is_none() && Limit::new(Some(CpuShare::Cores(0.5)), 1).is_some()
        );
        assert!(
            Limit::new(Some(CpuShare::Cores(1.0)), 1).is_none(),
            "one thread cannot exceed one core"
        );
    }

    #[test]
    fn a_thread_that_always_has_work_runs_for_its_share_of_the_time() {
        for cores in [0.25, 0.5, 1.5] {
            let mut credit = Credit::new(cores);
            let task = Duration::from_millis(3);
            // As many threads as fit, simulated on a virtual clock.
            let threads = if cores > 1.0 { 2 } else { 1 };
            let (mut now, mut ran) = (Duration::ZERO, Duration::ZERO);
            while now < Duration::from_secs(20) {
                now += task;
                ran += task * threads;
                now += credit.spend(now, task * threads);
            }
            let share = ran.as_secs_f64() / now.as_secs_f64();
            assert!((share - cores).abs() < 0.02, "{share} for {cores}");
        }
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut credit = Credit::new(1.0);
        let hour = Duration::from_secs(3600);
        assert_eq!(credit.spend(hour, BURST), Duration::ZERO);
        assert_eq!(credit.spend(hour, BURST), BURST);
    }

    #[test]
    fn the_cpu_time_of_a_thread_advances_while_it_works() {
        let (limit, before) = (Limit::new(Some(CpuShare::Cores(0.5)), 1), thread_time());
        let mut account = Account::new(limit.as_ref());
        while thread_time() < before + Duration::from_millis(30) {
            std::hint::black_box(before);
        }
        account.settle(|| true);
        let after = account.counted;
        assert!(after >= before + Duration::from_millis(30));
        Account::new(None).settle(|| false);
    }
}
