//! Packets of video as messages: one per frame, in the order in which frames are shown.

use kino_codec::{VideoCoding, VideoPage};
use kino_dataset::Stream;

use crate::bitstream::to_message;
use crate::error::{Result, invalid};
use crate::export::{Cameras, Losses, StreamOutline};

/// The name of a coding in a message; `None` if messages cannot have it.
pub(super) fn format(coding: VideoCoding) -> Option<&'static str> {
    match coding {
        VideoCoding::H264 => Some("h264"),
        VideoCoding::Hevc => Some("h265"),
        VideoCoding::Vp9 => Some("vp9"),
        VideoCoding::Av1 => Some("av1"),
        _ => None,
    }
}

/// Decides whether a stream of video is written as video, and otherwise makes it one of images.
pub(super) fn settle(
    outline: &mut StreamOutline,
    stream: &Stream,
    cameras: &Cameras,
    losses: &mut Losses,
) -> Result<()> {
    let Some(coding) = outline.video else {
        return Ok(());
    };
    let why = match cameras {
        Cameras::Images => None,
        _ if format(coding).is_none() => Some("messages have no such video"),
        _ if is_in_order(stream)? => return Ok(()),
        _ => Some("it has B-frames, or begins inside of a group of pictures"),
    };
    outline.video = None;
    if let Some(why) = why {
        let what = format!("is {coding} video and is written as images: {why}");
        losses.note(outline.place(), what);
    }
    Ok(())
}

/// Whether every packet shows the frame after the one before it. This is in the head of each page, so that all pages are
/// read; writing them takes longer.
fn is_in_order(stream: &Stream) -> Result<bool> {
    let mut next = 0;
    while next < stream.len() {
        let (frames, bytes) = stream.read_stored_page(next)?;
        let page = parse(stream, &bytes, frames.len())?;
        let shown = page.packets.iter().map(|packet| packet.frame);
        if frames.start != next || !shown.eq((0..frames.len()).map(Some)) {
            return Ok(false);
        }
        next = frames.end;
    }
    Ok(true)
}

/// The frames of the page that begins with frame `first`, as messages.
pub(super) fn messages(stream: &Stream, coding: VideoCoding, first: usize) -> Result<Vec<Vec<u8>>> {
    let (frames, bytes) = stream.read_stored_page(first)?;
    let page = parse(stream, &bytes, frames.len())?;
    let packets = page.packets.iter();
    let messages = packets
        .map(|packet| to_message(coding, packet.bytes, page.config, packet.starts_group))
        .collect::<Result<_, _>>();
    messages.map_err(|what| refuse(stream, first, &what))
}

fn parse<'a>(stream: &Stream, bytes: &'a [u8], frames: usize) -> Result<VideoPage<'a>> {
    VideoPage::parse(bytes, frames).map_err(|error| refuse(stream, 0, &error.to_string()))
}

fn refuse(stream: &Stream, frame: usize, what: &str) -> crate::error::ImportError {
    let name = &stream.schema().name;
    invalid(format!(
        "the video of stream `{name}` {what}, from frame {frame} on; export it with --cameras images"
    ))
}
