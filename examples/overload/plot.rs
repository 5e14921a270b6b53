//! The figures of a workload over the load, as an image.

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::policies::{AFTER, BEFORE, POLICIES};
use crate::report::{Figures, Report};
use crate::study::Study;
use crate::workload::Group;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const FONT: &str = "sans-serif";
const GRID: RGBColor = RGBColor(225, 225, 225);
const PANEL: (u32, u32) = (620, 360);
const KEY_WIDTH: u32 = 290;
const BOUND: &str = "bound";
const USEFUL: &str = "useful work";
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

/// An SVG image of studies of one workload at rising loads.
pub(crate) fn plot(title: &str, studies: &[Study]) -> Result<String, Box<dyn Error>> {
    let panels = panels(studies.first().map_or(&[], |study| study.workload.groups));
    let rows = panels.len().div_ceil(2) as u32;
    let size = (2 * PANEL.0 + KEY_WIDTH, rows * PANEL.1 + 50);
    let mut picture = String::new();
    let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
    draw(title, studies, &panels, &root)?;
    drop(root);
    Ok(picture)
}

/// Useful work and waits of all; then by group.
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
        share(USEFUL.into(), Box::new(|r| r.all.useful)),
        wait(
            "median wait of the served".into(),
            Box::new(|r| r.all.median_wait),
        ),
        share("served in time".into(), Box::new(|r| r.all.in_time)),
        wait(
            "p99 wait of the served".into(),
            Box::new(|r| r.all.p99_wait),
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

fn draw(title: &str, studies: &[Study], panels: &[Panel], root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let (head, rest) = root.split_vertically(50);
    let middle = Pos::new(HPos::Center, VPos::Center);
    let style = (FONT, 20).into_text_style(root).pos(middle);
    head.draw_text(title, &style, (PANEL.0 as i32, 26))?;
    let (diagrams, key) = rest.split_horizontally(2 * PANEL.0);
    let areas = diagrams.split_evenly((panels.len().div_ceil(2), 2));
    for (panel, area) in panels.iter().zip(&areas) {
        panel.draw(studies, area)?;
    }
    draw_key(&key)?;
    root.present()?;
    Ok(())
}

fn draw_key(area: &Area<'_>) -> Drawn {
    let left = Pos::new(HPos::Left, VPos::Center);
    let style = (FONT, 13).into_text_style(area).pos(left);
    let names = POLICIES.iter().map(|policy| policy.name);
    for (name, row) in names.chain([BOUND]).zip(0..) {
        let y = 30 + 22 * row;
        let line = PathElement::new([(10, y), (40, y)], line_style(name, row as usize));
        area.draw(&line)?;
        area.draw_text(name, &style, (48, y))?;
    }
    Ok(())
}

/// Ours are thick, the bound is black, and the others go round the colours, in two shades.
fn line_style(name: &str, at: usize) -> ShapeStyle {
    let hue = at as f64 * 5.0 / 18.0;
    let lightness = if at.is_multiple_of(2) { 0.35 } else { 0.6 };
    match name {
        AFTER => RGBColor(0, 90, 160).stroke_width(5),
        BEFORE => RGBColor(213, 94, 0).stroke_width(5),
        BOUND => BLACK.stroke_width(1),
        _ => HSLColor(hue.fract(), 0.7, lightness).stroke_width(2),
    }
}

impl Panel {
    fn draw(&self, studies: &[Study], area: &Area<'_>) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 16))
            .margin_right(18)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d(load_range(studies), self.value.range(studies))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .label_style((FONT, 12))
            .x_desc("load, in multiples of what the slots can do")
            .y_labels(6)
            .y_label_formatter(&|height| self.value.label(*height))
            .draw()?;
        // The thick ones last: they are what the image is about.
        let (thick, thin): (Vec<_>, Vec<_>) = (POLICIES.iter().enumerate())
            .partition(|(_, policy)| [BEFORE, AFTER].contains(&policy.name));
        for (at, policy) in thin.into_iter().chain(thick) {
            let point = |study: &Study| {
                let height = self.value.height(&study.reports[at])?;
                Some((study.workload.load(), height))
            };
            let style = line_style(policy.name, at);
            chart.draw_series(LineSeries::new(studies.iter().filter_map(point), style))?;
        }
        if self.title == USEFUL {
            let point = |study: &Study| (study.workload.load(), 100.0 * study.bound);
            let style = line_style(BOUND, 0);
            chart.draw_series(LineSeries::new(studies.iter().map(point), style))?;
        }
        Ok(())
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

    fn range(&self, studies: &[Study]) -> Range<f64> {
        match self {
            Self::Share(_) => 0.0..100.0,
            Self::Wait(_) => {
                let reports = studies.iter().flat_map(|study| &study.reports);
                let heights = reports.filter_map(|report| self.height(report));
                SHORTEST_WAIT.log10()..heights.fold(0.0, f64::max).ceil()
            }
        }
    }

    fn label(&self, height: f64) -> String {
        match self {
            Self::Share(_) => format!("{height} %"),
            Self::Wait(_) => format!("{} s", (10_f64.powf(height) * 100.0).round() / 100.0),
        }
    }
}

fn load_range(studies: &[Study]) -> Range<f64> {
    let loads = || studies.iter().map(|study| study.workload.load());
    loads().fold(f64::INFINITY, f64::min)..loads().fold(0.0, f64::max)
}
