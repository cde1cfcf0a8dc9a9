//! What a loader did so far, as plain numbers: the names here are those of its JSON.

use serde::{Deserialize, Serialize};

use super::Stage;
use super::timeline::Moment;
use super::waits::WaitReport;

/// What one stage did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Time spent in it, of all threads together.
    pub busy_s: f64,
    /// Tasks done.
    pub tasks: u64,
    /// Bytes that came out.
    pub bytes: u64,
}

/// What a loader did so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Since it started.
    pub elapsed_s: f64,
    /// Stage by stage.
    pub stages: Vec<StageReport>,
    /// Batches handed over.
    pub batches: u64,
    /// Samples handed over.
    pub samples: u64,
    /// Frames decoded.
    pub frames_decoded: u64,
    /// Frames put into batches.
    pub frames_used: u64,
    /// Stored bytes of the pages that were decoded. What was read besides lay between them, or waits to be decoded.
    pub stored_bytes_used: u64,
    /// Samples handed over that had to be replaced.
    pub substituted: u64,
    /// Samples all of whose frames were decoded when they were planned.
    pub cache_hits: u64,
    /// Samples that had to wait for a page.
    pub cache_misses: u64,
    /// How long the training loop waited for batches.
    pub waits: WaitReport,
    /// What happened when; at most 512 moments.
    pub timeline: Vec<Moment>,
    /// Reads that wait for a thread now.
    pub reads_queued: usize,
    /// Pages and samples that wait for a thread now.
    pub work_queued: usize,
    /// Decoded bytes held now.
    pub pool_bytes: u64,
    /// The most decoded bytes held at any time.
    pub pool_peak_bytes: u64,
    /// Stored bytes that were read and wait to be decoded now.
    pub stored_bytes: u64,
    /// The most stored bytes that were read and waited to be decoded at any time.
    pub stored_peak_bytes: u64,
    /// Bytes of batches: in preparation, ready, kept by the user, and kept to be used again.
    pub batch_buffer_bytes: u64,
    /// Bytes of the whole process in memory now, where the system says it.
    pub process_bytes: Option<u64>,
    /// The most of them at any time.
    pub process_peak_bytes: Option<u64>,
    /// Batches in preparation or ready.
    pub depth: usize,
    /// The most that there may be, as chosen or as given.
    pub prefetch_depth: usize,
    /// Its last changes: from which batch on, which depth.
    pub prefetch_changes: Vec<(u64, usize)>,
    /// Seconds in which a batch is made, on the average of the last ones.
    pub batch_s: f64,
    /// Seconds for which the training loop keeps a batch, usually.
    pub step_s: f64,
    /// Threads that decode and do not rest.
    pub threads_active: usize,
    /// Threads that read and do not rest.
    pub readers_active: usize,
}

impl Report {
    /// What a stage did; nothing if there was none.
    pub fn stage(&self, stage: Stage) -> StageReport {
        let found = self.stages.iter().find(|one| one.stage == stage);
        found.copied().unwrap_or(StageReport {
            stage,
            busy_s: 0.0,
            tasks: 0,
            bytes: 0,
        })
    }

    /// Bytes read for each stored byte that was decoded; 1 is the least. 0 if nothing was decoded.
    pub fn read_amplification(&self) -> f64 {
        ratio(self.stage(Stage::Fetch).bytes, self.stored_bytes_used)
    }

    /// Frames decoded for each frame in a batch: below 1, because windows share frames. 0 if there was none.
    pub fn decode_amplification(&self) -> f64 {
        ratio(self.frames_decoded, self.frames_used)
    }
}

fn ratio(of: u64, by: u64) -> f64 {
    if by == 0 { 0.0 } else { of as f64 / by as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_goes_to_json_and_back_by_the_names_of_its_fields() {
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
}
