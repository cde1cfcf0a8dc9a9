//! HDF5 files of unknown layouts: what is detected in them, and that damage never panics.

use kino_import::{ClockSpec, FrameBuf, ImportOptions};

use crate::damage::survive;
use crate::{fixture, ids, open, position, read_all};

#[test]
fn groups_with_times_and_image_files_are_episodes() {
    let source = open(&fixture("labs/groups.h5"));
    assert_eq!(source.describe().format, "hdf5");
    assert_eq!(ids(&source), ["demo_0", "demo_1"]);
    let front = position(&source, 1, "front");
    let spec = &source.episodes()[1].streams[front];
    assert!(spec.carried);
    let times: Vec<i64> = (0..12).map(|frame| frame * 50_000_000).collect();
    assert_eq!(spec.clock, ClockSpec::Explicit(times.into()));
    let FrameBuf::Bytes(files) = read_all(&source, 1, front, 5) else {
        panic!("image files");
    };
    assert_eq!(files.len(), 12);
    assert!(files.iter().all(|file| file.starts_with(&[0xff, 0xd8])));
}

#[test]
fn rows_of_arrays_are_episodes_with_a_stream_per_camera() {
    let source = open(&fixture("labs/rows.h5"));
    assert_eq!(ids(&source), ["episode_0", "episode_1"]);
    let streams = source.episodes()[1].streams.iter();
    let found: Vec<_> = streams
        .map(|stream| {
            (
                stream.name.as_str(),
                stream.frames,
                stream.frame.to_string(),
            )
        })
        .collect();
    let image = "uint8[8, 8, 3]".to_owned();
    assert_eq!(
        found,
        [
            ("action", 18, "float64[2]".to_owned()),
            ("cams/0", 18, image.clone()),
            ("cams/1", 18, image)
        ]
    );
    let FrameBuf::Values(bytes) = read_all(&source, 1, 0, 7) else {
        panic!("numbers");
    };
    assert_eq!(bytes[..8], 24_f64.to_le_bytes());
}

#[test]
fn damage_is_survived() {
    let (folder, options) = (fixture("labs"), ImportOptions::default());
    for file in ["groups.h5", "rows.h5"] {
        survive(&folder, file, &options, [11, 23, 97]);
    }
}
