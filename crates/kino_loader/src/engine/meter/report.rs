//! What a loader has done so far, as plain numbers. The field names are the keys of its JSON.

use serde::{Deserialize, Serialize};

use super::Stage;
use super::timeline::Moment;
use super::waits::WaitReport;

/// What one stage did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Seconds spent in it, summed over all threads.
    pub busy_s: f64,
    /// Tasks done.
    pub tasks: u64,
    /// Bytes produced.
    pub bytes: u64,
}

/// What a loader has done so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Seconds since it started.
    pub elapsed_s: f64,
    /// What each stage did.
    pub stages: Vec<StageReport>,
    /// Batches handed over.
    pub batches: u64,
    /// Samples handed over.
    pub samples: u64,
    /// Frames decoded.
    pub frames_decoded: u64,
    /// Frames put into batches.
    pub frames_used: u64,
    /// Stored bytes of the pages that were decoded. Other bytes read lie between them, or are not decoded yet.
    pub stored_bytes_used: u64,
    /// Samples handed over that are substitutes.
    pub substituted: u64,
    /// Samples whose frames were all decoded when they were scheduled.
    pub cache_hits: u64,
    /// Samples that had to wait for a page.
    pub cache_misses: u64,
    /// How long the training loop waited for batches.
    pub waits: WaitReport,
    /// The run over time, in at most 512 moments.
    pub timeline: Vec<Moment>,
    /// Reads queued now.
    pub reads_queued: usize,
    /// Pages and samples queued now for decoding and collating.
    pub work_queued: usize,
    /// Decoded bytes in the cache now.
    pub cache_bytes: u64,
    /// Peak of `cache_bytes`.
    pub cache_peak_bytes: u64,
    /// Stored bytes that are read but not yet decoded, now.
    pub stored_bytes: u64,
    /// Peak of `stored_bytes`.
    pub stored_peak_bytes: u64,
    /// Stored bytes that stay in memory, in place of decoded frames, because reading them takes long.
    pub stored_kept_bytes: u64,
    /// Reads that were served from them.
    pub stored_hits: u64,
    /// Bytes of batches: in preparation, ready, kept by the user, and kept for reuse.
    pub batch_buffer_bytes: u64,
    /// Resident bytes of the whole process now, if the system reports them.
    pub process_bytes: Option<u64>,
    /// Peak of `process_bytes`.
    pub process_peak_bytes: Option<u64>,
    /// Batches in preparation or ready.
    pub depth: usize,
    /// Limit on `depth`, chosen by the loader or set by the user.
    pub prefetch_depth: usize,
    /// The last changes of `prefetch_depth`: first batch, and the depth from it on.
    pub prefetch_changes: Vec<(u64, usize)>,
    /// Seconds to produce a batch: mean of the last ones.
    pub batch_s: f64,
    /// Seconds for which the training loop keeps a batch: median of the last ones.
    pub step_s: f64,
    /// Active decode threads.
    pub threads_active: usize,
    /// Active read threads; of a remote dataset, how many reads may be under way at once.
    pub readers_active: usize,
    /// The last changes of `readers_active` of a remote dataset, which follows the measured bytes per second: seconds since the
    /// start, and the number from then on.
    pub readers_changes: Vec<(f64, usize)>,
}

impl Report {
    /// What a stage did; all zero if it is not in the report.
    pub fn stage(&self, stage: Stage) -> StageReport {
        let found = self.stages.iter().find(|one| one.stage == stage);
        found.copied().unwrap_or(StageReport {
            stage,
            busy_s: 0.0,
            tasks: 0,
            bytes: 0,
        })
    }

    /// Bytes read per stored byte decoded; 1 is ideal. 0 if nothing was decoded.
    pub fn read_amplification(&self) -> f64 {
        ratio(self.stage(Stage::Fetch).bytes, self.stored_bytes_used)
    }

    /// Frames decoded per frame in a batch: below 1 where windows share frames. 0 if no frame was used.
    pub fn decode_amplification(&self) -> f64 {
        ratio(self.frames_decoded, self.frames_used)
    }
}

fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 {
        0.0
    } else {
        numerator as f64 / denominator as f64
    }
}

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
    fn a_report_round_trips_through_json_by_its_field_names() {
        let report = Report {
            elapsed_s: 1.5,
            stages: vec![StageReport {
                stage: Stage::Fetch,
                busy_s: 0.5,
                tasks: 3,
                bytes: 300,
            }],
            stored_bytes_used: 200,
            frames_decoded: 5,
            frames_used: 50,
            timeline: vec![Moment::default()],
            prefetch_changes: vec![(0, 4)],
            process_bytes: Some(7),
            ..Report::default()
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["stages"][0]["stage"], "fetch");
        assert_eq!(json["prefetch_changes"][0][1], 4);
        let back: Report = serde_json::from_value(json).unwrap();
        assert_eq!(back, report);
        assert_eq!(
            (report.read_amplification(), report.decode_amplification()),
            (1.5, 0.1)
        );
        let old: Report = serde_json::from_str(r#"{"batches": 3}"#).unwrap();
        assert_eq!((old.batches, old.read_amplification()), (3, 0.0));
    }

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
