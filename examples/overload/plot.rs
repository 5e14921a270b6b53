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
/// In seconds. Shorter waits are drawn as this, because a logarithmic axis has no zero.
const SHORTEST_WAIT: f64 = 0.01;

/// A diagram: one line for each policy.
struct Panel {
    title: String,
    value: Value,
}

type Get<T> = Box<dyn Fn(&Report) -> T>;

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
        share("useful work".into(), Box::new(|r| r.all.useful)),
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
    for (name, row) in names.chain(["bound"]).zip(0..) {
        let y = 30 + 22 * row;
        let line = PathElement::new([(10, y), (40, y)], line_style(name, row as usize));
        area.draw(&line)?;
        area.draw_text(name, &style, (48, y))?;
    }
    Ok(())
}

/// Ours are thick, the bound is black, and the others go round the colours.
fn line_style(name: &str, at: usize) -> ShapeStyle {
    match name {
        AFTER => RGBColor(0, 90, 160).stroke_width(5),
        BEFORE => RGBColor(213, 94, 0).stroke_width(5),
        "bound" => BLACK.stroke_width(1),
        _ => Palette99::pick(at).stroke_width(2),
    }
}

impl Panel {
    fn draw(&self, studies: &[Study], area: &Area<'_>) -> Drawn {
        let loads = load_range(studies);
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(&self.title, (FONT, 16))
            .margin_right(18)
            .x_label_area_size(40)
            .y_label_area_size(52);
        // The axes differ in type, so this is written twice.
        match &self.value {
            Value::Share(get) => {
                let mut chart = builder.build_cartesian_2d(loads, 0.0..100.0)?;
                chart
                    .configure_mesh()
                    .light_line_style(TRANSPARENT)
                    .bold_line_style(GRID)
                    .label_style((FONT, 12))
                    .x_desc("load, in multiples of what the slots can do")
                    .y_label_formatter(&|percent| format!("{percent} %"))
                    .draw()?;
                for (at, policy) in POLICIES.iter().enumerate() {
                    let point =
                        |study: &Study| (study.workload.load(), 100.0 * get(&study.reports[at]));
                    let style = line_style(policy.name, at);
                    chart.draw_series(LineSeries::new(studies.iter().map(point), style))?;
                }
                if self.title == "useful work" {
                    let point = |study: &Study| (study.workload.load(), 100.0 * study.bound);
                    let style = line_style("bound", 0);
                    chart.draw_series(LineSeries::new(studies.iter().map(point), style))?;
                }
            }
            Value::Wait(get) => {
                let longest = longest_wait(studies, get);
                let waits = (SHORTEST_WAIT..longest).log_scale();
                let mut chart = builder.build_cartesian_2d(loads, waits)?;
                chart
                    .configure_mesh()
                    .light_line_style(TRANSPARENT)
                    .bold_line_style(GRID)
                    .label_style((FONT, 12))
                    .x_desc("load, in multiples of what the slots can do")
                    .y_label_formatter(&|seconds| format!("{seconds} s"))
                    .draw()?;
                for (at, policy) in POLICIES.iter().enumerate() {
                    let points = studies.iter().filter_map(|study| {
                        let wait = get(&study.reports[at])?.as_secs_f64();
                        Some((study.workload.load(), wait.max(SHORTEST_WAIT)))
                    });
                    let style = line_style(policy.name, at);
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
        }
        Ok(())
    }
}

fn load_range(studies: &[Study]) -> Range<f64> {
    let loads = || studies.iter().map(|study| study.workload.load());
    loads().fold(f64::INFINITY, f64::min)..loads().fold(0.0, f64::max)
}

fn longest_wait(studies: &[Study], get: &Get<Option<Duration>>) -> f64 {
    let reports = studies.iter().flat_map(|study| &study.reports);
    let waits = reports.filter_map(get).map(|wait| wait.as_secs_f64());
    waits.fold(1.0, f64::max)
}
