use kino_codec::{Dtype, RoundTrip};

use super::*;

const HEIGHT: usize = 96;
const WIDTH: usize = 128;

fn image_type() -> ValueType {
    ValueType::new(Dtype::U8, &[HEIGHT, WIDTH, 3]).unwrap()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped to a byte first"
)]
fn to_byte(value: f64) -> u8 {
    value.clamp(1.0, 254.0).round() as u8
}

/// Surfaces with edges and texture, warm on the left, and sensor noise.
fn camera_image(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut noise = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        f64::from(u16::try_from(state >> 48).unwrap()) / 65_536.0 - 0.5
    };
    let mut pixels = Vec::with_capacity(HEIGHT * WIDTH * 3);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let (across, down) = (x as f64 / WIDTH as f64, y as f64 / HEIGHT as f64);
            let edge = if (x / 24 + y / 30) % 2 == 0 {
                40.0
            } else {
                0.0
            };
            let texture = 12.0 * (x as f64 * 0.9).sin() * (y as f64 * 0.7).cos();
            let base = 80.0 + 50.0 * down + edge + texture;
            for warm in [40.0 * (1.0 - across), 0.0, 30.0 * across - 20.0] {
                let value = base + warm + 4.0 * (noise() + noise() + noise());
                pixels.push(to_byte(value));
            }
        }
    }
    pixels
}

fn after(codec: &str, pixels: &[u8]) -> Vec<u8> {
    let mut trip = RoundTrip::new(kino_codec::codec(codec).unwrap(), image_type()).unwrap();
    let mut out = vec![0; pixels.len()];
    trip.apply(pixels, &mut out).unwrap();
    out
}

fn trace(images: &[Vec<u8>]) -> Option<JpegSeen> {
    let mut trace = JpegTrace::default();
    for image in images {
        trace.add(image, &image_type());
    }
    trace.find()
}

fn figure(pixels: &[u8], figure: Figure) -> f64 {
    let seen = Appearance::of(pixels, &image_type()).unwrap();
    seen.figure(figure).unwrap()
}

#[test]
fn the_quality_of_a_jpeg_file_is_seen_in_its_pixels() {
    let images: Vec<_> = (1..4).map(camera_image).collect();
    let none = trace(&images).map_or(0.0, |seen| seen.fit);
    assert!(none < 0.2, "{none}");
    for quality in [30, 50, 75, 90, 95_u8] {
        for subsampling in [444, 420] {
            let codec = format!("jpeg:q={quality},sub={subsampling}");
            let files: Vec<_> = images.iter().map(|image| after(&codec, image)).collect();
            let seen = trace(&files).unwrap();
            assert!(seen.fit > 0.4, "{codec}: {seen:?}");
            assert!(seen.quality.abs_diff(quality) <= 2, "{codec}: {seen:?}");
        }
    }
}

#[test]
fn lossless_codecs_leave_no_trace_and_a_flat_image_has_none() {
    let image = camera_image(9);
    assert_eq!(trace(&[after("predict", &image)]), trace(&[image]));
    assert_eq!(trace(&[vec![90; HEIGHT * WIDTH * 3]]), None);
    assert_eq!(trace(&[Vec::new()]), None);
}

#[test]
fn exposure_color_and_borders_are_what_was_put_in() {
    let image = camera_image(3);
    let darker: Vec<u8> = image.iter().map(|value| value / 2).collect();
    let before = figure(&image, Figure::Brightness);
    assert!((figure(&darker, Figure::Brightness) - before / 2.0).abs() < 1.0);
    assert!(
        (figure(&darker, Figure::Contrast) * 2.0 / figure(&image, Figure::Contrast) - 1.0).abs()
            < 0.03
    );

    let swapped: Vec<u8> = image
        .chunks_exact(3)
        .flat_map(|pixel| [pixel[2], pixel[1], pixel[0]])
        .collect();
    let [as_is, other] = [&image, &swapped].map(|one| Appearance::of(one, &image_type()).unwrap());
    assert_eq!(as_is.red_blue.len(), 16);
    for (a, b) in as_is.red_blue.iter().zip(&other.red_blue) {
        assert!((a + b).abs() < 1e-9);
    }
    // Warm on the left, cold on the right.
    assert!(as_is.red_blue[0] > 20.0 && as_is.red_blue[3] < as_is.red_blue[0] - 20.0);

    let mut framed = image;
    framed[..WIDTH * 3 * 7].fill(0);
    for row in framed.chunks_exact_mut(WIDTH * 3) {
        row[(WIDTH - 5) * 3..].fill(3);
    }
    let seen = Appearance::of(&framed, &image_type()).unwrap();
    assert_eq!(seen.borders, [7, 0, 0, 5]);
    let black = Appearance::of(&vec![0; HEIGHT * WIDTH * 3], &image_type()).unwrap();
    assert_eq!((black.borders, black.max), ([0; 4], 0));
}

#[test]
fn blur_lowers_sharpness_and_noise_and_blocks_raise_blocking() {
    let image = camera_image(5);
    let row = WIDTH * 3;
    let mut blurred = image.clone();
    for y in 1..HEIGHT - 1 {
        for x in 3..row - 3 {
            let around =
                [y - 1, y, y + 1].map(|y| [x - 3, x, x + 3].map(|x| u32::from(image[y * row + x])));
            let sum: u32 = around.iter().flatten().sum();
            blurred[y * row + x] = u8::try_from(sum / 9).unwrap();
        }
    }
    for one in [Figure::Sharpness, Figure::Noise] {
        assert!(
            figure(&blurred, one) < 0.6 * figure(&image, one).abs(),
            "{one:?}"
        );
    }
    assert!(
        figure(&after("jpeg:q=10", &image), Figure::Blocking)
            > figure(&image, Figure::Blocking) + 0.3
    );
}

#[test]
fn grey_images_have_no_color_and_small_ones_no_figures() {
    let grey = ValueType::new(Dtype::U8, &[16, 40, 1]).unwrap();
    let seen = Appearance::of(&[7; 640], &grey).unwrap();
    assert_eq!(seen.figure(Figure::RedGreen), None);
    assert_eq!(seen.figure(Figure::Brightness), Some(7.0));
    assert_eq!(seen.figure(Figure::Flat), Some(1.0));
    for shape in [&[15, 40, 3][..], &[40, 40], &[0, 0, 3], &[16, 16, 0]] {
        let ty = ValueType::new(Dtype::U8, shape).unwrap();
        assert_eq!(Appearance::of(&vec![0; ty.frame_bytes()], &ty), None);
        JpegTrace::default().add(&vec![0; ty.frame_bytes()], &ty);
    }
}
