//! The CPU's share: how many threads a loader may have, and how long they may run.
//!
//! ```text
//! credit ▲  ╱╲    ╱╲      comes with time, `cores` seconds per second; goes with the CPU time of threads
//!        │ ╱  ╲  ╱  ╲
//!      0 └╱────╲╱────╲──▶ below it a thread rests before its next task
//! ```
//!
//! A host whose cores are all busy launches kernels late, and the accelerator waits for that too. So by default one core
//! is left alone. A share that is no whole number of cores is kept by resting between tasks, never inside one.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A share of the machine. In JSON a number counts cores, and text such as `"50%"` is a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum CpuShare {
    /// So many cores; 2.5 are two and a half.
    Cores(f64),
    /// A part of the cores that this process may use.
    Fraction(f64),
}

/// A share as a person writes it.
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
                .map(|one: f64| Self::Fraction(one / 100.0)),
            None => text.trim().parse().map(Self::Cores),
        };
        share.map_err(|_| {
            format!(
                "`{text}` is not a CPU share; give cores, such as 2.5, or a percentage, such as 50%"
            )
        })
    }
}

impl CpuShare {
    /// As cores; never more than there are.
    pub fn cores(self) -> f64 {
        let available = available() as f64;
        match self {
            Self::Cores(cores) => cores.min(available),
            Self::Fraction(fraction) => fraction * available,
        }
    }

    /// As many threads as can use it.
    pub fn threads(self) -> usize {
        let cores = self.cores();
        (1..available())
            .find(|&count| count as f64 >= cores)
            .unwrap_or(available())
    }
}

/// Threads that decode if nobody says how many: all cores but one, which the training loop and the kernel launches need.
pub fn default_threads() -> usize {
    available().saturating_sub(1).max(1)
}

/// Cores that this process may use: those of its affinity, and no more than its cgroup's quota gives.
fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// So much may be run ahead, per core: a burst is cheaper than many naps.
const BURST: Duration = Duration::from_millis(20);

/// The longest nap: a loader that ends waits for it.
const NAP: Duration = Duration::from_millis(10);

/// Keeps the threads of a loader within a number of cores.
#[derive(Debug)]
pub(super) struct Limit {
    started: Instant,
    credit: Mutex<Credit>,
}

impl Limit {
    /// Nothing to keep if all threads together cannot use more.
    pub(super) fn new(share: Option<CpuShare>, threads: usize) -> Option<Self> {
        let cores = share?.cores();
        (cores < threads as f64).then(|| Self {
            started: Instant::now(),
            credit: Mutex::new(Credit::new(cores)),
        })
    }

    /// Counts CPU time; how long to rest before the next task.
    fn spend(&self, used: Duration) -> Duration {
        let mut credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        credit.spend(self.started.elapsed(), used)
    }
}

/// One thread's account with a [`Limit`].
#[derive(Debug)]
pub(super) struct Account<'l> {
    limit: Option<&'l Limit>,
    counted: Duration,
}

impl<'l> Account<'l> {
    /// Of the thread that calls this.
    pub(super) fn new(limit: Option<&'l Limit>) -> Self {
        Self {
            limit,
            counted: thread_time(),
        }
    }

    /// Pays for what was run since the last time, and rests as long as there is no credit.
    pub(super) fn settle(&mut self, is_stopped: impl Fn() -> bool) {
        let Some(limit) = self.limit else {
            return;
        };
        let now = thread_time();
        let mut used = now.saturating_sub(self.counted);
        self.counted = now;
        loop {
            let rest = limit.spend(used);
            if rest.is_zero() || is_stopped() {
                return;
            }
            std::thread::sleep(rest.min(NAP));
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

/// Where nobody counts a thread's CPU time: the time that it had, which is at least as much.
#[cfg(not(unix))]
fn thread_time() -> Duration {
    thread_local! {
        static STARTED: Instant = Instant::now();
    }
    STARTED.with(Instant::elapsed)
}

/// Seconds that may be run.
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
        // What was not used for long is lost: the share is one of now, not of the whole run.
        let most = self.cores * BURST.as_secs_f64();
        self.seconds = (self.seconds + passed * self.cores).min(most) - used.as_secs_f64();
        let missing = (-self.seconds).max(0.0) / self.cores.max(1e-3);
        Duration::try_from_secs_f64(missing).unwrap_or(NAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_as_many_as_can_use_the_share_and_never_more_than_there_are() {
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
            "one thread is one core"
        );
    }

    #[test]
    fn a_thread_that_always_has_work_runs_for_its_share_of_the_time() {
        for cores in [0.25, 0.5, 1.5] {
            let mut credit = Credit::new(cores);
            let task = Duration::from_millis(3);
            // As many threads as fit, one after the other on a clock of our own.
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
    fn a_thread_s_own_time_goes_on_while_it_works() {
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
