//! Named points in groups, and the Pareto front: the points that no other point beats on both axes.
//!
//! ```text
//! decode │ ·zstd
//!        │      ╌╌·jpeg 95
//!        │           ╌╌╌╌·jpeg 75      ╌ the front
//!        └─────────────────── size
//! ```

use super::Plot;
use super::axis::Axis;
use super::lines::to_path;
use super::style::SERIES;
use super::svg::{Anchor, Dimension, Frame, LETTER, Place, Svg, WIDTH, clip, escape};

/// Which end of an axis is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// A point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// Its label.
    pub(crate) name: String,
    /// Points of one group share a color.
    pub(crate) group: String,
    /// Horizontal value.
    pub(crate) x: f64,
    /// Vertical value.
    pub(crate) y: f64,
}

/// What to draw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scatter<'a> {
    /// The title.
    pub(crate) title: &'a str,
    /// Horizontal axis.
    pub(crate) x: &'a Axis,
    /// Vertical axis.
    pub(crate) y: &'a Axis,
    /// The points.
    pub(crate) points: &'a [Point],
    /// Which end of each axis is better; `None` draws no front.
    pub(crate) better: Option<(Better, Better)>,
}

/// A scatter plot; points on the front are labelled, or all points if there is no front.
pub(crate) fn scatter(request: &Scatter<'_>) -> Plot {
    let (x, y) = (request.x, request.y);
    let points: Vec<&Point> = request
        .points
        .iter()
        .filter(|point| x.drawable(point.x) && y.drawable(point.y))
        .collect();
    let across = Dimension::new(x, points.iter().map(|point| point.x));
    let up = Dimension::new(y, points.iter().map(|point| point.y));
    let Some((across, up)) = across.zip(up) else {
        return Svg::empty(request.title);
    };
    let groups = groups(&points);
    let mut frame = Frame::new(request.title, across, up, &groups);
    let front = request.better.map(|(x, y)| front(&points, x, y));
    if let Some(front) = &front {
        let path = to_path(front.iter().map(|point| frame.at(point.x, point.y)));
        frame
            .svg
            .add(format_args!("<path class=\"front\" d=\"{path}\"/>"));
    }
    for point in points {
        let is_named = front.as_ref().is_none_or(|front| {
            let mut front = front.iter();
            front.any(|other| std::ptr::eq(*other, point))
        });
        let group = groups.iter().position(|group| *group == point.group);
        draw(&mut frame, request, point, group.unwrap_or(0));
        if is_named {
            draw_name(&mut frame, point);
        }
    }
    frame.svg.finish()
}

fn draw(frame: &mut Frame, request: &Scatter<'_>, point: &Point, group: usize) {
    let Some([x, y]) = frame.at(point.x, point.y) else {
        return;
    };
    let tooltip = format!(
        "{}: {}, {}",
        point.name,
        request.x.quantity(point.x),
        request.y.quantity(point.y)
    );
    frame.svg.add(format_args!(
        "<circle class=\"f{}\" cx=\"{}\" cy=\"{}\" r=\"4.5\"><title>{}</title></circle>",
        group % SERIES,
        Place(x),
        Place(y),
        escape(&tooltip)
    ));
}

fn draw_name(frame: &mut Frame, point: &Point) {
    let Some([x, y]) = frame.at(point.x, point.y) else {
        return;
    };
    let widths = point.name.chars().scan(0.0, |width, _| {
        *width += LETTER;
        Some(*width)
    });
    let fitting = |room: f64| widths.clone().take_while(|width| *width <= room).count();
    // On the side that has more room, if it does not fit on the right.
    let (left, right) = (x - 8.0, WIDTH - x - 8.0);
    let is_right = widths.clone().all(|width| width <= right) || right >= left;
    let (at, anchor, most) = if is_right {
        (x + 8.0, Anchor::Start, fitting(right))
    } else {
        (x - 8.0, Anchor::End, fitting(left))
    };
    let name = clip(&point.name, most);
    frame.svg.text([at, y - 5.0], anchor, "", &name);
}

/// Each group once, in order of first appearance.
fn groups<'a>(points: &[&'a Point]) -> Vec<&'a str> {
    let mut groups: Vec<&str> = Vec::new();
    for point in points {
        if !groups.contains(&point.group.as_str()) {
            groups.push(&point.group);
        }
    }
    groups
}

/// The points that no other point beats, from left to right: one pass, from the better end of the first axis.
fn front<'a>(points: &[&'a Point], x: Better, y: Better) -> Vec<&'a Point> {
    let mut sorted: Vec<&Point> = points.to_vec();
    sorted.sort_by(|a, b| {
        let by_x = towards(x, a.x).total_cmp(&towards(x, b.x));
        by_x.then(towards(y, a.y).total_cmp(&towards(y, b.y)))
    });
    let mut best = f64::INFINITY;
    let mut front: Vec<&Point> = Vec::new();
    for point in sorted {
        let value = towards(y, point.y);
        if value < best {
            best = value;
            front.push(point);
        }
    }
    if x == Better::Higher {
        front.reverse();
    }
    front
}

/// The value, negated if necessary so that less is better.
fn towards(better: Better, value: f64) -> f64 {
    match better {
        Better::Lower => value,
        Better::Higher => -value,
    }
}

#[cfg(test)]
mod tests {
    use super::super::well_formed::check;
    use super::*;

    fn point(name: &str, x: f64, y: f64) -> Point {
        Point {
            name: name.into(),
            group: name[..1].into(),
            x,
            y,
        }
    }

    /// Naive reference: a point is on the front if no other is at least as good on both axes and better on one.
    fn naive(points: &[Point], x: Better, y: Better) -> Vec<String> {
        let key = |point: &Point| (towards(x, point.x), towards(y, point.y));
        let is_beaten = |point: &Point| {
            let (px, py) = key(point);
            points
                .iter()
                .map(key)
                .any(|(ox, oy)| ox <= px && oy <= py && (ox < px || oy < py))
        };
        let mut names: Vec<String> = points
            .iter()
            .filter(|point| !is_beaten(point))
            .map(|point| point.name.clone())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_front_holds_the_points_that_no_other_beats() {
        // Distinct points in a pseudo-random order.
        let points: Vec<Point> = (0..40_u32)
            .map(|idx| {
                point(
                    &format!("p{idx}"),
                    f64::from(idx * 17 % 41),
                    f64::from(idx * 29 % 43),
                )
            })
            .collect();
        let all: Vec<&Point> = points.iter().collect();
        for x in [Better::Lower, Better::Higher] {
            for y in [Better::Lower, Better::Higher] {
                let front = front(&all, x, y);
                assert!(
                    front.windows(2).all(|pair| pair[0].x < pair[1].x),
                    "left to right"
                );
                let mut names: Vec<String> = front.iter().map(|point| point.name.clone()).collect();
                names.sort();
                assert_eq!(names, naive(&points, x, y), "{x:?} {y:?}");
            }
        }
    }

    #[test]
    fn a_name_that_is_longer_than_the_plot_is_shortened_on_the_side_with_more_room() {
        let long = "n".repeat(90);
        let points = [point(&long, 1.0, 1.0), point(&long, 9.0, 9.0)];
        let axis = Axis::new("", "");
        let Plot { svg, .. } = scatter(&Scatter {
            title: "t",
            x: &axis,
            y: &axis,
            points: &points,
            better: None,
        });
        check(&svg);
        let labels: Vec<(f64, bool, usize)> = svg
            .split("<text x=\"")
            .filter(|text| text.contains("n…</text>"))
            .map(|text| {
                let x: f64 = text.split('"').next().unwrap().parse().unwrap();
                let name = text.split(['<', '>']).nth(1).unwrap();
                (x, text.contains("\"end\""), name.chars().count())
            })
            .collect();
        let [(left, false, first), (right, true, second)] = labels[..] else {
            panic!("{labels:?}");
        };
        let width = |letters: usize| (0..letters).map(|_| LETTER).sum::<f64>();
        assert!(left + width(first) <= WIDTH && left + width(first + 1) > WIDTH);
        assert!(right >= width(second) && right < width(second + 1));
    }

    #[test]
    fn points_on_the_front_are_labelled_and_all_points_have_a_tooltip() {
        let points = [
            point("a<1>", 1e3, 1.0),
            point("b", 1e6, 10.0),
            point("c", f64::NAN, 1.0),
            point("d", 0.0, 1.0),
        ];
        let axis = Axis::log("size", "B");
        let request = Scatter {
            title: "t",
            x: &axis,
            y: &Axis::log("decode", "s"),
            points: &points,
            better: Some((Better::Lower, Better::Lower)),
        };
        let Plot { svg, .. } = scatter(&request);
        check(&svg);
        assert!(!svg.contains("NaN") && svg.matches("<circle").count() == 2);
        assert!(svg.contains(">a&lt;1&gt;</text>") && svg.contains("b: 1 MB, 10 s"));
        // The legend names its group; the point itself is not labelled.
        assert_eq!(svg.matches(">b</text>").count(), 1);
        let empty = Scatter {
            points: &points[2..],
            ..request.clone()
        };
        assert!(scatter(&empty).svg.contains("no data"));
        let plain = Scatter {
            better: None,
            ..request
        };
        assert!(!scatter(&plain).svg.contains("class=\"front\""));
    }
}
