//! The figures of the runs, as a plot.

use std::error::Error;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tower_triage::Priority;

use crate::run::Run;
use crate::workload::LEVELS;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// One for each run. Distinguishable with colour blindness, too.
const COLOURS: [RGBColor; 4] = [
    RGBColor(120, 120, 120),
    RGBColor(230, 145, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 90, 160),
];
const GRID: RGBColor = RGBColor(225, 225, 225);
/// The browser's default font.
const FONT: &str = "sans-serif";
/// In seconds. Shorter waits are drawn as this, because a logarithmic axis has no zero.
const SHORTEST_WAIT: f64 = 0.01;
const INTERVAL: Duration = Duration::from_secs(2);

/// An SVG image: the waits by level, above the memory in use.
pub(crate) fn plot(runs: &[Run]) -> Result<String, Box<dyn Error>> {
    let mut picture = String::new();
    let backend = SVGBackend::with_string(&mut picture, (1_000, 760));
    draw(runs, &backend.into_drawing_area())?;
    Ok(picture)
}

fn draw(runs: &[Run], root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let (head, rest) = root.margin(0, 8, 8, 0).split_vertically(84);
    title(runs, &head)?;
    let (waits, memory) = rest.split_vertically(352);
    let panels = waits.split_evenly((1, LEVELS.len()));
    for (panel, (level, name)) in panels.iter().zip((0..).zip(LEVELS)) {
        waits_of_level(runs, panel, Priority(level), name)?;
    }
    memory_over_time(runs, &memory)?;
    root.present()?;
    Ok(())
}

fn title(runs: &[Run], area: &Area<'_>) -> Drawn {
    let middle = Pos::new(HPos::Center, VPos::Center);
    let style = (FONT, 22).into_text_style(area).pos(middle);
    area.draw_text("The same requests, batched in four ways", &style, (500, 26))?;
    let left = Pos::new(HPos::Left, VPos::Center);
    let style = (FONT, 15).into_text_style(area).pos(left);
    for ((run, colour), column) in runs.iter().zip(COLOURS).zip(0..) {
        let x = 40 + 240 * column;
        let key = [(x, 60), (x + 26, 60)];
        area.draw(&PathElement::new(key, colour.stroke_width(4)))?;
        area.draw_text(run.plan.name, &style, (x + 34, 60))?;
    }
    Ok(())
}

/// The distribution of the waits of one level.
fn waits_of_level(runs: &[Run], area: &Area<'_>, level: Priority, name: &str) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(format!("priority {name}"), (FONT, 17))
        .margin_right(18)
        .x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d((SHORTEST_WAIT..longest(runs)).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .label_style((FONT, 13))
        .x_desc("wait in s (logarithmic)")
        .x_label_formatter(&|seconds| seconds.to_string())
        .y_desc("started by then")
        .y_labels(6)
        .y_label_formatter(&|percent| format!("{percent} %"))
        .draw()?;
    for (run, colour) in runs.iter().zip(COLOURS) {
        let waits = run.waits(level);
        let percent = |rank: usize| 100.0 * rank as f64 / waits.len() as f64;
        let points = waits
            .iter()
            .zip(1..)
            .map(|(wait, rank)| (wait.as_secs_f64().max(SHORTEST_WAIT), percent(rank)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(3)))?;
    }
    Ok(())
}

fn memory_over_time(runs: &[Run], area: &Area<'_>) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption("memory reserved for running sequences", (FONT, 17))
        .margin_top(12)
        .margin_right(18)
        .x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..longest(runs), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .label_style((FONT, 13))
        .x_desc("time in s")
        .x_label_formatter(&|seconds| seconds.to_string())
        .y_desc("of the budget")
        .y_labels(6)
        .y_label_formatter(&|percent| format!("{percent} %"))
        .draw()?;
    for (run, colour) in runs.iter().zip(COLOURS) {
        let shares = run.memory(INTERVAL);
        let points = shares
            .iter()
            .zip(0..)
            .map(|(share, n)| (INTERVAL.as_secs_f64() * f64::from(n), 100.0 * share));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}

/// The duration of the longest run in seconds: no wait is longer.
fn longest(runs: &[Run]) -> f64 {
    let seconds = runs.iter().map(|run| run.took.as_secs_f64());
    seconds.fold(1.0, f64::max)
}
