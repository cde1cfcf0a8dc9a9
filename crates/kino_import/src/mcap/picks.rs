//! Which fields of well-known messages form one stream.
//!
//! | message | stream |
//! |---|---|
//! | Image, RawImage, CompressedImage, CompressedVideo | the image |
//! | Pose, Transform | position and orientation, 7 values |
//! | Wrench, Twist, Accel | 6 values |
//! | Imu | orientation, angular velocity, linear acceleration |
//! | std_msgs | its `data` |
//!
//! Anything else has one stream per field.

/// What a stream takes from a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pick {
    /// The image in the message at this path.
    Image(String),
    /// These fields, concatenated.
    Fields(Vec<String>),
}

/// Parts of a message, each with its axes.
type Parts = &'static [(&'static str, &'static [&'static str])];

const XYZ: &[&str] = &["x", "y", "z"];
const XYZW: &[&str] = &["x", "y", "z", "w"];
const POSE: Parts = &[("position", XYZ), ("orientation", XYZW)];
const TRANSFORM: Parts = &[("translation", XYZ), ("rotation", XYZW)];
const WRENCH: Parts = &[("force", XYZ), ("torque", XYZ)];
const TWIST: Parts = &[("linear", XYZ), ("angular", XYZ)];
const VECTOR: Parts = &[("", XYZ)];
const QUATERNION: Parts = &[("", XYZW)];

/// Message type, suffix of the stream's name, nested message, its parts.
type Known = (&'static str, &'static str, &'static str, Parts);

const KNOWN: &[Known] = &[
    ("geometry_msgs/Pose", "", "", POSE),
    ("geometry_msgs/PoseStamped", "", "pose", POSE),
    (
        "geometry_msgs/PoseWithCovarianceStamped",
        "",
        "pose.pose",
        POSE,
    ),
    ("geometry_msgs/Transform", "", "", TRANSFORM),
    ("geometry_msgs/TransformStamped", "", "transform", TRANSFORM),
    ("geometry_msgs/Wrench", "", "", WRENCH),
    ("geometry_msgs/WrenchStamped", "", "wrench", WRENCH),
    ("geometry_msgs/Twist", "", "", TWIST),
    ("geometry_msgs/TwistStamped", "", "twist", TWIST),
    ("geometry_msgs/Accel", "", "", TWIST),
    ("geometry_msgs/AccelStamped", "", "accel", TWIST),
    ("geometry_msgs/PointStamped", "", "point", VECTOR),
    ("geometry_msgs/Vector3Stamped", "", "vector", VECTOR),
    (
        "geometry_msgs/QuaternionStamped",
        "",
        "quaternion",
        QUATERNION,
    ),
    ("sensor_msgs/Imu", "orientation", "orientation", QUATERNION),
    (
        "sensor_msgs/Imu",
        "angular_velocity",
        "angular_velocity",
        VECTOR,
    ),
    (
        "sensor_msgs/Imu",
        "linear_acceleration",
        "linear_acceleration",
        VECTOR,
    ),
    ("nav_msgs/Odometry", "pose", "pose.pose", POSE),
    ("nav_msgs/Odometry", "twist", "twist.twist", TWIST),
    ("foxglove.PoseInFrame", "", "pose", POSE),
    ("foxglove.FrameTransform", "", "", TRANSFORM),
];

const IMAGES: [&str; 6] = [
    "sensor_msgs/Image",
    "sensor_msgs/CompressedImage",
    "foxglove.RawImage",
    "foxglove.CompressedImage",
    "foxglove.CompressedVideo",
    "foxglove_msgs/CompressedVideo",
];

/// The streams of a well-known message, each with its name suffix; empty for any other.
pub(super) fn known(schema: &str) -> Vec<(&'static str, Pick)> {
    if IMAGES.contains(&schema) {
        return vec![("", Pick::Image(String::new()))];
    }
    if schema.starts_with("std_msgs/")
        && !matches!(
            schema,
            "std_msgs/Header" | "std_msgs/ColorRGBA" | "std_msgs/Empty"
        )
    {
        return vec![("", Pick::Fields(vec!["data".to_owned()]))];
    }
    let rows = KNOWN.iter().filter(|(name, ..)| *name == schema);
    rows.map(|(_, end, inside, parts)| {
        let fields = parts.iter().flat_map(|(part, axes)| {
            let part = join(inside, part, '.');
            axes.iter().map(move |axis| join(&part, axis, '.'))
        });
        (*end, Pick::Fields(fields.collect()))
    })
    .collect()
}

/// Two parts of a path, or the one that is not empty.
pub(super) fn join(before: &str, behind: &str, by: char) -> String {
    match (before, behind) {
        ("", only) | (only, "") => only.to_owned(),
        (before, behind) => format!("{before}{by}{behind}"),
    }
}
