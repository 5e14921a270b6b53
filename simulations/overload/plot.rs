//! The figures of a workload over the load, as an image with a line for each of [`LINES`].
//!
//! The image brings its own background, in a light and a dark version. So it can be read on any page, whatever colours the
//! page and the reader's system have.

use std::fmt::Write;
use std::time::Duration;

use crate::policies::{AFTER, POLICIES};
use crate::report::{Figures, Report};
use crate::study::Study;
use crate::workload::Group;

/// A policy's line in the image.
struct Line {
    policy: &'static str,
    label: &'static str,
    /// Its class in [`STYLE`].
    class: &'static str,
}

/// The policies of the image, in the order in which they are drawn: this crate lies on top. The table has all policies.
const LINES: [Line; 5] = [
    Line {
        policy: "tower ConcurrencyLimit",
        label: "ConcurrencyLimit",
        class: "limit",
    },
    Line {
        policy: "HAProxy maxconn",
        label: "HAProxy",
        class: "haproxy",
    },
    Line {
        policy: "tower LoadShed + it",
        label: "LoadShed",
        class: "shed",
    },
    Line {
        policy: "adaptive LIFO + CoDel, scaled",
        label: "adaptive LIFO + CoDel",
        class: "lifo",
    },
    Line {
        policy: AFTER,
        label: "this crate",
        class: "ours",
    },
];

/// The colours are those of Okabe and Ito, which colour-blind readers can tell apart; each line has a dash of its own, too.
const STYLE: &str = "
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.small { font-size: 12px; fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #e4e8ec }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
.ours { stroke: #0072b2; stroke-width: 4.5 }
.limit { stroke: #d55e00 }
.haproxy { stroke: #b0578d; stroke-dasharray: 9 6 }
.shed { stroke: #00805c; stroke-dasharray: 2 4 }
.lifo { stroke: #8a6d00; stroke-dasharray: 12 4 2 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small { fill: #9da7b1 }
  .card { fill: #0d1117; stroke: #3d444d }
  .grid { stroke: #262c36 }
  .ours { stroke: #58b4ff }
  .limit { stroke: #ff8a4c }
  .haproxy { stroke: #e79ac6 }
  .shed { stroke: #3fcf9f }
  .lifo { stroke: #e3c04b }
}
";

const WIDTH: f64 = 940.0;
/// Of the title and the key above the panels.
const HEAD: f64 = 84.0;
const PANEL: (f64, f64) = (WIDTH / 2.0, 300.0);
/// Space of a panel around its diagram: left, top, right and bottom.
const MARGINS: (f64, f64, f64, f64) = (58.0, 34.0, 22.0, 50.0);
/// In seconds. Shorter waits are drawn as this, because a logarithmic axis has no zero.
const SHORTEST_WAIT: f64 = 0.01;

type Get<T> = Box<dyn Fn(&Report) -> T>;

/// A diagram: one line for each policy.
struct Panel {
    title: String,
    value: Value,
}

enum Value {
    Share(Get<f64>),
    Wait(Get<Option<Duration>>),
}

/// The range of an axis, and the pixels that it is drawn on.
#[derive(Clone, Copy)]
struct Axis {
    values: (f64, f64),
    pixels: (f64, f64),
}

/// An SVG image of studies of one workload at rising loads.
pub(crate) fn plot(title: &str, studies: &[Study]) -> String {
    let panels = panels(studies.first().map_or(&[], |study| study.workload.groups));
    let rows = panels.len().div_ceil(2) as f64;
    let height = HEAD + rows * PANEL.1;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        escaped(title),
        WIDTH - 1.0,
        height - 1.0,
    );
    text(&mut svg, (20.0, 28.0), "small", "start", title);
    draw_key(&mut svg);
    for (at, panel) in panels.iter().enumerate() {
        let (column, row) = ((at % 2) as f64, (at / 2) as f64);
        let corner = (column * PANEL.0, HEAD + row * PANEL.1);
        panel.draw(&mut svg, corner, studies);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Useful work and waits of all requests; then shares and waits of each group.
fn panels(groups: &[Group]) -> Vec<Panel> {
    let share = |title: String, get: Get<f64>| Panel {
        title,
        value: Value::Share(get),
    };
    let wait = |title: String, get: Get<Option<Duration>>| Panel {
        title,
        value: Value::Wait(get),
    };
    let mut panels = vec![
        share(
            "useful work, of all slot time".into(),
            Box::new(|r| r.all.useful),
        ),
        wait(
            "median wait of the served".into(),
            Box::new(|r| r.all.median_wait),
        ),
    ];
    for (at, group) in groups.iter().enumerate() {
        let of = move |report: &Report| -> Figures { report.groups[at] };
        let name = group.name;
        panels.push(share(
            format!("{name}: served in time"),
            Box::new(move |r| of(r).in_time),
        ));
        panels.push(wait(
            format!("{name}: p99 wait of the served"),
            Box::new(move |r| of(r).p99_wait),
        ));
    }
    panels
}

/// The names of the lines in a row, this crate's first.
fn draw_key(svg: &mut String) {
    let mut x = 20.0;
    for line in LINES.iter().rev() {
        draw_line(svg, line, &[(x, 58.0), (x + 34.0, 58.0)]);
        text(svg, (x + 42.0, 62.0), "", "start", line.label);
        x += 72.0 + 7.2 * line.label.len() as f64;
    }
}

fn draw_line(svg: &mut String, line: &Line, points: &[(f64, f64)]) {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    writeln!(
        svg,
        "<polyline class=\"line {}\" points=\"{}\"/>",
        line.class,
        points.join(" ")
    )
    .expect("a string takes all");
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, words: &str) {
    let words = escaped(words);
    writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    )
    .expect("a string takes all");
}

fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Panel {
    fn draw(&self, svg: &mut String, (left, top): (f64, f64), studies: &[Study]) {
        let x = Axis {
            values: load_range(studies),
            pixels: (left + MARGINS.0, left + PANEL.0 - MARGINS.2),
        };
        let y = Axis {
            values: self.value.range(studies),
            pixels: (top + PANEL.1 - MARGINS.3, top + MARGINS.1),
        };
        text(
            svg,
            (x.pixels.0, y.pixels.1 - 14.0),
            "title",
            "start",
            &self.title,
        );
        for (height, label) in self.value.ticks(y.values) {
            let y = y.at(height);
            grid(svg, (x.pixels.0, y), (x.pixels.1, y));
            text(svg, (x.pixels.0 - 8.0, y + 4.0), "small", "end", &label);
        }
        for half in 0..=6 {
            let load = f64::from(half) / 2.0;
            if (x.values.0..=x.values.1).contains(&load) {
                let x = x.at(load);
                grid(svg, (x, y.pixels.0), (x, y.pixels.1));
                let label = format!("{load:.1}");
                text(svg, (x, y.pixels.0 + 18.0), "small", "middle", &label);
            }
        }
        let middle = (x.pixels.0 + x.pixels.1) / 2.0;
        let words = "load, in multiples of what the slots can do";
        text(svg, (middle, y.pixels.0 + 38.0), "small", "middle", words);
        for line in &LINES {
            let at = line.place();
            let point = |study: &Study| {
                let height = self.value.height(&study.reports[at])?;
                Some((x.at(study.workload.load()), y.at(height)))
            };
            let points: Vec<_> = studies.iter().filter_map(point).collect();
            draw_line(svg, line, &points);
        }
    }
}

fn grid(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    writeln!(
        svg,
        "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    )
    .expect("a string takes all");
}

impl Line {
    /// The place of its policy in [`POLICIES`], and so of its report in a study.
    fn place(&self) -> usize {
        let found = POLICIES.iter().position(|entry| entry.name == self.policy);
        found.expect("each line is of a policy")
    }
}

impl Axis {
    /// The pixel of a value.
    fn at(self, value: f64) -> f64 {
        let share = (value - self.values.0) / (self.values.1 - self.values.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }
}

impl Value {
    /// In percent, or the logarithm of seconds.
    fn height(&self, report: &Report) -> Option<f64> {
        match self {
            Self::Share(get) => Some(100.0 * get(report)),
            Self::Wait(get) => {
                let seconds = get(report)?.as_secs_f64();
                Some(seconds.max(SHORTEST_WAIT).log10())
            }
        }
    }

    fn range(&self, studies: &[Study]) -> (f64, f64) {
        match self {
            Self::Share(_) => (0.0, 100.0),
            Self::Wait(_) => {
                let reports = studies
                    .iter()
                    .flat_map(|study| LINES.iter().map(|line| &study.reports[line.place()]));
                let heights = reports.filter_map(|report| self.height(report));
                (
                    SHORTEST_WAIT.log10(),
                    heights.fold(0.0_f64, f64::max).ceil(),
                )
            }
        }
    }

    /// Heights with their labels: each 20 %, or each power of ten.
    fn ticks(&self, (lowest, highest): (f64, f64)) -> Vec<(f64, String)> {
        match self {
            Self::Share(_) => (0..=5)
                .map(|fifth| (f64::from(20 * fifth), format!("{} %", 20 * fifth)))
                .collect(),
            Self::Wait(_) => (lowest as i32..=highest as i32)
                .map(|power| (f64::from(power), format!("{} s", 10_f64.powi(power))))
                .collect(),
        }
    }
}

fn load_range(studies: &[Study]) -> (f64, f64) {
    let loads = || studies.iter().map(|study| study.workload.load());
    (
        loads().fold(f64::INFINITY, f64::min),
        loads().fold(0.0, f64::max),
    )
}
