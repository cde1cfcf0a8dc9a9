//! Frames: members of tars, one per frame or an array of all frames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{ImportError, Result};
use crate::files::ReadingPath;
use crate::image::{self, Encoded};
use crate::link::{Extent, PageExtent};
use crate::npy::Npy;
use crate::recent::Recent;
use crate::source::{FrameBuf, ReadFrames, StreamSpec, Wanted};
use crate::specs::places;
use crate::webdataset::cell::{self, Cell, Place, Reader};

#[derive(Debug)]
pub(crate) struct Tars {
    pub(crate) paths: Vec<PathBuf>,
    /// Arrays with a time axis that were read last: where each is, and its name inside an npz.
    pub(crate) recent: Recent<(Place, Option<String>), Npy>,
}

#[derive(Debug)]
pub(crate) struct TarStream {
    pub(crate) tars: Arc<Tars>,
    /// One location per frame, or that of an array with a time axis.
    pub(crate) places: Vec<Place>,
    /// The name of the array inside an npz.
    pub(crate) array: Option<String>,
    pub(crate) encoded: Option<Encoded>,
    pub(crate) is_over_time: bool,
}

impl ReadFrames for TarStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted {
            episode,
            stream,
            frames,
        } = wanted;
        let paths = &self.tars.paths;
        let wrong = |what: String| {
            let object = format!("{}, stream `{}`", episode.id, stream.name);
            let file = self.places.first().map_or(0, |place| place.file);
            ImportError::corrupt(&paths[file], &object, what)
        };
        let mut reader = Reader::default();
        let mut read = |place: Place| {
            let bytes = reader.read(paths, place);
            bytes.reading(&paths[place.file])
        };
        if self.is_over_time {
            let place = self.places[0];
            let npy = self.tars.recent.get((place, self.array.clone()), || {
                let cell = cell::decode(place.ending, &read(place)?, self.array.as_deref());
                match cell.map_err(wrong)? {
                    Cell::Array(npy) => Ok(npy),
                    Cell::Text(list) => cell::texts(&list).map_err(wrong),
                    Cell::Image(_) => Err(wrong("has changed since it was opened".to_owned())),
                }
            })?;
            return cell::rows(&npy, places(&frames)).map_err(wrong);
        }
        let wanted = self.places.get(places(&frames)).unwrap_or_default();
        if let Some(encoded) = &self.encoded {
            let files = wanted.iter().map(|place| read(*place));
            let files: Vec<_> = files.collect::<Result<_>>()?;
            let files = files.iter().map(Vec::as_slice);
            return image::read(files, encoded, frames.start).map_err(wrong);
        }
        let mut out = match stream.frame.as_values() {
            Some(_) => FrameBuf::Values(Vec::new()),
            None => FrameBuf::Bytes(Vec::new()),
        };
        for (place, frame) in wanted.iter().zip(frames.start..) {
            let cell = cell::decode(place.ending, &read(*place)?, self.array.as_deref());
            cell.and_then(|cell| cell::push(cell, &stream.frame, &mut out))
                .map_err(|what| wrong(format!("frame {frame} {what}")))?;
        }
        Ok(out)
    }

    fn link_codec(&self, _stream: &StreamSpec) -> Result<String, String> {
        match &self.encoded {
            _ if self.is_over_time => Err("is stored as an array of all frames".to_owned()),
            Some(encoded) if encoded.carried => Ok("jpeg:carry".to_owned()),
            Some(_) => Err("is stored as PNG files".to_owned()),
            None => Err("is stored as npy files".to_owned()),
        }
    }

    fn link(&self, wanted: Wanted<'_>) -> Result<Vec<PageExtent>> {
        let mut paths = BTreeMap::new();
        let places = self.places.get(places(&wanted.frames)).unwrap_or_default();
        let pages = places.iter().map(|place| {
            let path = paths
                .entry(place.file)
                .or_insert_with(|| Arc::<Path>::from(self.tars.paths[place.file].as_path()));
            PageExtent {
                frames: 1,
                pieces: vec![Extent::File {
                    path: Arc::clone(path),
                    offset: place.start,
                    len: place.len,
                }],
            }
        });
        Ok(pages.collect())
    }
}
