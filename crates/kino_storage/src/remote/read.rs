//! One read, whatever the network does: repeated if it is slow, begun again if it stops.
//!
//! ```text
//! GET ──first byte──▶ chunk ▶ chunk ▶ … ▶ end          the usual case
//! GET ──slow? GET again; the first answer counts       hedge.rs decides when
//! GET ▶ chunk ▶ silence, or a broken connection        the rest is read again, from where it stopped
//! GET ──503 Slow Down──▶ pause ──▶ GET                 the pauses grow, and differ between readers
//! ```
//!
//! The client below repeats nothing by itself: a read that was answered with `503` would look slow, and be sent twice.

use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kino_sync::Mutex;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use tokio::time::{sleep, timeout};

use super::hedge::{Pace, Percentiles};
use super::meter::{RequestMeter, add};
use super::speed::{Rates, Speed};

/// A server that stops for so long in the middle of an answer is given up on; `hedge.rs` says how long it may take to begin.
const PAUSE: Duration = Duration::from_secs(3);

/// How often a read is begun; less often before anything was ever read: then the address is probably wrong.
const ATTEMPTS: u32 = 10;
const FIRST_ATTEMPTS: u32 = 3;

/// After so long without a byte a read is not begun again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Memory that is reserved for an answer before it arrives.
const MOST_RESERVED: usize = 64 << 20;

/// The pause before a read is begun again, doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const MOST_BACKOFF: Duration = Duration::from_secs(5);

/// Reads of one storage.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pace: Mutex<Pace>,
    rates: Mutex<Rates>,
}

/// An answer whose first bytes have arrived.
struct Answer {
    range: Range<u64>,
    /// The length of the whole object.
    object: u64,
    chunk: Option<Result<Bytes, Error>>,
    rest: BoxStream<'static, Result<Bytes, Error>>,
}

/// Why an attempt ended.
enum Stopped {
    /// Nothing can be done.
    Failed(Error),
    /// It may go better next time.
    Broken(Error),
}

impl Reads {
    pub(super) fn percentiles(&self) -> Percentiles {
        self.pace.lock().percentiles()
    }

    pub(super) fn speed(&self) -> Speed {
        Speed {
            first_byte: self.percentiles().half,
            bytes_per_s: self.rates.lock().median(),
        }
    }

    /// The bytes of a range, or of the whole object if there is none; an object longer than `limit` is not read, and
    /// its length is returned instead.
    pub(super) async fn read(
        &self,
        store: &dyn ObjectStore,
        meter: &RequestMeter,
        key: &Path,
        wanted: Wanted,
    ) -> Result<Found, Error> {
        let mut got = BytesMut::new();
        let mut backoff = FIRST_BACKOFF;
        let mut is_known = !self.pace.lock().is_new();
        let mut left = if is_known { ATTEMPTS } else { FIRST_ATTEMPTS };
        let mut progress = (0, Instant::now());
        loop {
            left -= 1;
            let range = wanted.after(got.len() as u64);
            let one = Attempt {
                store,
                meter,
                key,
                silence: self.pace.lock().silence(),
            };
            if got.len() > progress.0 {
                progress = (got.len(), Instant::now());
            }
            match self.attempt(&one, range, &wanted, &mut got).await {
                Ok(Some(object)) => return Ok(Found::TooLong(object)),
                Ok(None) => return Ok(Found::Bytes(got.freeze())),
                Err(Stopped::Failed(error)) => return Err(error),
                Err(Stopped::Broken(error)) => {
                    // A server that answers, if only that it is busy, is at the right address.
                    if !is_known && has_status(&error) {
                        (is_known, left) = (true, ATTEMPTS);
                    }
                    if left == 0 || progress.1.elapsed() > PATIENCE {
                        return Err(error);
                    }
                    add(&meter.retried, 1);
                    sleep(jittered(backoff)).await;
                    backoff = MOST_BACKOFF.min(2 * backoff);
                }
            }
        }
    }

    /// Appends to `got` what arrives; `Some` is the length of an object that is too long.
    async fn attempt(
        &self,
        one: &Attempt<'_>,
        range: Option<GetRange>,
        wanted: &Wanted,
        got: &mut BytesMut,
    ) -> Result<Option<u64>, Stopped> {
        let mut answer = self.first(one, range).await?;
        if answer.object > wanted.limit {
            return Ok(Some(answer.object));
        }
        let whole = answer.range.end - answer.range.start;
        // A damaged index or a lying server may name any length: beyond this, memory grows as bytes arrive.
        got.reserve(usize::try_from(whole).unwrap_or(0).min(MOST_RESERVED));
        let end = got.len() as u64 + whole;
        let (began, before) = (Instant::now(), got.len());
        let mut chunk = answer.chunk.take();
        while let Some(bytes) = chunk {
            let bytes = bytes.map_err(Stopped::Broken)?;
            add(&one.meter.bytes_read, bytes.len() as u64);
            if got.len() as u64 + bytes.len() as u64 > end {
                return Err(broken("the answer is longer than it should be".to_owned()));
            }
            got.extend_from_slice(&bytes);
            let next = timeout(PAUSE, answer.rest.next()).await;
            chunk = next.map_err(|_| {
                broken(format!(
                    "the server stopped sending for {} s",
                    PAUSE.as_secs()
                ))
            })?;
        }
        if got.len() as u64 == end {
            let bytes = got.len() - before;
            self.rates.lock().learn(bytes, began.elapsed());
            Ok(None)
        } else {
            Err(broken("the answer ended too early".to_owned()))
        }
    }

    /// Waits for the first bytes, of two requests if the first is slow.
    async fn first(&self, one: &Attempt<'_>, range: Option<GetRange>) -> Result<Answer, Stopped> {
        let delay = self.pace.lock().begin();
        let began = Instant::now();
        let mut first = std::pin::pin!(one.request(range.clone()));
        let answer = loop {
            match timeout(delay, &mut first).await {
                Ok(answer) => break answer,
                Err(_) if self.pace.lock().may_repeat() => {
                    add(&one.meter.hedges, 1);
                    let silence = self.pace.lock().silence();
                    // If the first to answer failed, both are given up, and the read is begun again.
                    break tokio::select! {
                        answer = &mut first => answer,
                        answer = one.request(range.clone()) => {
                            add(&one.meter.hedges_won, 1);
                            answer
                        }
                        () = sleep(silence) => Err(silent(silence)),
                    };
                }
                // Too many are repeated, or everything is slow: perhaps not for as long as this one waits. One of the first reads,
                // which began when nothing was known, waits no longer than later ones.
                Err(_) => {
                    let silence = self.pace.lock().silence();
                    if began.elapsed() >= silence {
                        break Err(silent(silence));
                    }
                }
            }
        };
        let waited = began.elapsed();
        let is_given_up = waited >= self.pace.lock().silence();
        if answer.is_ok() || is_given_up {
            self.pace.lock().learn(waited);
        }
        answer
    }
}

/// A pause of half of this to all of it, so that readers that were refused together do not come back together.
pub fn jittered(pause: Duration) -> Duration {
    let mut hasher = std::hash::DefaultHasher::new();
    std::time::SystemTime::now().hash(&mut hasher);
    std::thread::current().id().hash(&mut hasher);
    let share = u32::try_from(hasher.finish() % 512).unwrap_or(0);
    pause / 2 + pause / 2 * share / 512
}

/// What is to be read.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The range, or everything.
    pub(super) range: Option<Range<u64>>,
    /// The longest object of which anything is read.
    pub(super) limit: u64,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Found {
    Bytes(Bytes),
    /// The object has so many bytes.
    TooLong(u64),
}

impl Wanted {
    /// A range, of an object of any length.
    pub(super) fn range(range: Range<u64>) -> Self {
        Self {
            range: Some(range),
            limit: u64::MAX,
        }
    }

    /// What is left once the first bytes have arrived.
    fn after(&self, got: u64) -> Option<GetRange> {
        match &self.range {
            Some(range) => Some(GetRange::Bounded(range.start + got..range.end)),
            None if got > 0 => Some(GetRange::Offset(got)),
            None => None,
        }
    }
}

/// Where one request goes.
struct Attempt<'a> {
    store: &'a dyn ObjectStore,
    meter: &'a RequestMeter,
    key: &'a Path,
    /// How long the first byte may take.
    silence: Duration,
}

impl Attempt<'_> {
    async fn request(&self, range: Option<GetRange>) -> Result<Answer, Stopped> {
        add(&self.meter.gets, 1);
        let answer = timeout(self.silence, async {
            let options = GetOptions {
                range,
                ..GetOptions::default()
            };
            let result = self.store.get_opts(self.key, options).await?;
            let (range, object) = (result.range.clone(), result.meta.size);
            let mut rest = result.into_stream();
            let chunk = rest.next().await;
            Ok(Answer {
                range,
                object,
                chunk,
                rest,
            })
        });
        match answer.await {
            // What else the server says is final: there is no such object, or no permission.
            Ok(Err(error @ Error::Generic { .. })) if !is_final(&error) => {
                Err(Stopped::Broken(error))
            }
            Ok(answer) => answer.map_err(Stopped::Failed),
            Err(_) => Err(silent(self.silence)),
        }
    }
}

/// Pauses between the tries of what is not a read.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    (0..3).map(|doubled| jittered(FIRST_BACKOFF * (1 << doubled)))
}

/// Whether an answer broke off.
pub(super) fn is_broken(error: &Error) -> bool {
    matches!(error, Error::Generic { .. })
        && !has_status(error)
        && !error.to_string().contains("after ")
}

/// Whether a server has answered.
fn has_status(error: &Error) -> bool {
    error.to_string().contains("status code")
}

/// Whether a server has refused a request for good, by a status without a variant of its own.
fn is_final(error: &Error) -> bool {
    let text = error.to_string();
    let status = text.split("status code: ").nth(1).unwrap_or_default();
    let is_later = ["408", "425", "429"]
        .iter()
        .any(|code| status.starts_with(code));
    (status.starts_with('4') && !is_later) || text.contains("bare redirect")
}

/// A server that did not begin to answer.
fn silent(waited: Duration) -> Stopped {
    broken(format!(
        "the server did not answer for {} s",
        waited.as_secs()
    ))
}

fn broken(what: String) -> Stopped {
    Stopped::Broken(Error::Generic {
        store: "network",
        source: what.into(),
    })
}

/// The length of an object.
pub(super) async fn head(
    store: &dyn ObjectStore,
    meter: &RequestMeter,
    key: &Path,
) -> Result<u64, Error> {
    add(&meter.heads, 1);
    Ok(store.head(key).await?.size)
}
