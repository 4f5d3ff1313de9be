use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::{Report, digits};
use crate::row::{Measure, Row, RowOp};

const WIDTH: u32 = 1280;
/// Height of the head, of a setup's two panels, and of the foot.
const HEAD: u32 = 80;
const BAND: u32 = 380;
const FOOT: u32 = 40;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Of a group's place on the axis.
const BARS: f64 = 0.76;

/// What a plot is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotFormat {
    /// Scalable vector graphics.
    Svg,
    /// A bitmap.
    Png,
}

impl PlotFormat {
    /// The format that a file's name asks for.
    ///
    /// # Errors
    /// The name ends in neither `.svg` nor `.png`.
    pub fn of(file: &Path) -> Result<Self> {
        match file.extension().map(|extension| extension.to_ascii_lowercase()) {
            Some(extension) if extension == "svg" => Ok(Self::Svg),
            Some(extension) if extension == "png" => Ok(Self::Png),
            _ => bail!("a plot is a .svg or a .png file, which {} is not", file.display()),
        }
    }
}

/// Draws the rows: a bar for each median, a mark where the raw loop's is, the ratio of the two above.
///
/// # Errors
/// There is nothing to draw, or the file can't be written.
pub fn plot(report: &Report, file: &Path) -> Result<()> {
    let format = PlotFormat::of(file)?;
    let setups = setups(&report.rows);
    if setups.is_empty() {
        bail!("there is no row to draw");
    }
    let size = (WIDTH, HEAD + BAND * setups.len() as u32 + FOOT);
    let font = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
    font.map_err(|_| anyhow!("the font can't be used"))?;
    let drawn: Result<()> = match format {
        PlotFormat::Svg => {
            draw(SVGBackend::new(file, size).into_drawing_area(), report, &setups).map_err(Into::into)
        }
        PlotFormat::Png => {
            draw(BitMapBackend::new(file, size).into_drawing_area(), report, &setups).map_err(Into::into)
        }
    };
    drawn.with_context(|| format!("can't draw {}", file.display()))
}

/// The rows of one path and memory.
struct Setup<'r> {
    title: String,
    rates: Vec<Group<'r>>,
    times: Vec<Group<'r>>,
}

/// The rows that stand side by side.
struct Group<'r> {
    label: String,
    rows: Vec<&'r Row>,
}

/// How a panel's values are laid along its axis.
#[derive(Clone, Copy)]
enum Scale {
    FromZero,
    Decades,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::FromZero => value,
            Self::Decades => value.max(1e-3).log10(),
        }
    }

    fn label(self, place: f64, high: f64) -> String {
        match self {
            Self::FromZero if high < 10.0 => format!("{place:.1}"),
            Self::FromZero => format!("{place:.0}"),
            Self::Decades if (place - place.round()).abs() > 1e-6 => String::new(),
            Self::Decades => format!("{}", 10f64.powf(place.round())),
        }
    }

    /// Where the axis begins and ends, with room for the ratios above.
    fn range(self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        match self {
            Self::FromZero => (0.0, high.max(0.1) * 1.15),
            Self::Decades => {
                let (low, high) = (self.place(low), self.place(high));
                let low = (low - 0.2).floor();
                (low, (high + (high - low) * 0.12).max(low + 1.0))
            }
        }
    }
}

fn setups(rows: &[Row]) -> Vec<Setup<'_>> {
    let mut setups: Vec<Setup<'_>> = Vec::new();
    for row in rows {
        let title = format!("{}, {} memory", row.path, row.memory);
        if setups.last().is_none_or(|last| last.title != title) {
            setups.push(Setup { title, rates: Vec::new(), times: Vec::new() });
        }
        let Some(setup) = setups.last_mut() else { continue };
        let groups = match row.measure {
            Measure::Rate { .. } => &mut setup.rates,
            Measure::Time { .. } => &mut setup.times,
        };
        let label = match row.blocks {
            Some(blocks) => format!("{} {}k", row.pattern, blocks / 1000),
            None => row.pattern.to_string(),
        };
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { label, rows: vec![row] }),
        }
    }
    setups
}

fn draw<B: DrawingBackend>(
    root: DrawingArea<B, Shift>,
    report: &Report,
    setups: &[Setup<'_>],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    root.fill(&WHITE)?;
    head(&root, report)?;
    for (i, setup) in (0..).zip(setups) {
        let top = (HEAD + BAND * i) as i32;
        let bottom = top + BAND as i32;
        let middle = match (setup.rates.is_empty(), setup.times.is_empty()) {
            (true, _) => 0,
            (_, true) => WIDTH as i32,
            _ => WIDTH as i32 * 54 / 100,
        };
        let area =
            |left, right| root.clone().shrink((left, top), ((right - left) as u32, (bottom - top) as u32));
        if !setup.rates.is_empty() {
            let title = format!("{}: throughput, GB/s (more is better)", setup.title);
            panel(&root, &area(0, middle), &title, "GB/s", &setup.rates, Scale::FromZero)?;
        }
        if !setup.times.is_empty() {
            let title = format!("{}: time, µs (less is better)", setup.title);
            panel(&root, &area(middle, WIDTH as i32), &title, "µs", &setup.times, Scale::Decades)?;
        }
    }
    let foot = HEAD + BAND * setups.len() as u32 + FOOT / 2;
    let style = text(13, INK).pos(Pos::new(HPos::Left, VPos::Center));
    root.draw(&Text::new(report.conditions.to_string(), (16, foot as i32), style))?;
    root.present()
}

/// The title and the key.
fn head<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    report: &Report,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let left = |size| text(size, INK).pos(Pos::new(HPos::Left, VPos::Center));
    let title = "kvferry bench: medians, each beside the raw loop of the same mechanism in the same run";
    root.draw(&Text::new(title, (16, 24), left(20)))?;
    let mut at = 16;
    for op in [RowOp::Write, RowOp::Read, RowOp::Notify] {
        if report.rows.iter().all(|row| row.op != op) {
            continue;
        }
        root.draw(&Rectangle::new([(at, 48), (at + 14, 62)], colour(op).filled()))?;
        root.draw(&Text::new(op.name(), (at + 20, 55), left(14)))?;
        at += 100;
    }
    root.draw(&PathElement::new(vec![(at, 55), (at + 24, 55)], INK.stroke_width(3)))?;
    root.draw(&Text::new("raw loop; above it: kvferry by raw loop", (at + 32, 55), left(14)))
}

fn panel<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    area: &DrawingArea<B, Shift>,
    title: &str,
    unit: &str,
    groups: &[Group<'_>],
    scale: Scale,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let values =
        groups.iter().flat_map(|group| &group.rows).flat_map(|row| [row.measure.median(), row.limit_median]);
    let (low, high) = scale.range(values);
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(16, INK))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..groups.len() as f64 - 0.5, low..high)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_labels(8)
        .y_label_formatter(&|place| scale.label(*place, high))
        .y_desc(unit)
        .label_style(text(13, INK))
        .axis_style(INK)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (i, group) in groups.iter().enumerate() {
        let width = BARS / group.rows.len().max(2) as f64;
        let start = i as f64 - width * group.rows.len() as f64 / 2.0;
        for (j, row) in group.rows.iter().enumerate() {
            let (left, right) = (start + width * j as f64, start + width * (j + 1) as f64);
            let (value, limit) = (scale.place(row.measure.median()), scale.place(row.limit_median));
            let gap = width * 0.06;
            let bar = Rectangle::new([(left + gap, low), (right - gap, value)], colour(row.op).filled());
            chart.draw_series([bar])?;
            chart
                .draw_series([PathElement::new(vec![(left, limit), (right, limit)], INK.stroke_width(3))])?;
            let above = chart.plotting_area().map_coordinate(&((left + right) / 2.0, value.max(limit)));
            let ratio = text(13, INK).pos(Pos::new(HPos::Center, VPos::Bottom));
            root.draw(&Text::new(quotient(row.ratio), (above.0, above.1 - 4), ratio))?;
        }
        let below = chart.plotting_area().map_coordinate(&(i as f64, low));
        let label = text(14, INK).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(group.label.clone(), (below.0, below.1 + 8), label))?;
    }
    Ok(())
}

/// A ratio in as few signs as stand above a bar.
fn quotient(ratio: f64) -> String {
    if ratio < 0.1 { format!("{:.2}%", ratio * 100.0) } else { digits(ratio) }
}

fn colour(op: RowOp) -> RGBColor {
    match op {
        RowOp::Write => RGBColor(0x2f, 0x7e, 0xb8),
        RowOp::Read => RGBColor(0xe0, 0x8a, 0x2e),
        RowOp::Notify => RGBColor(0x5a, 0x9e, 0x55),
    }
}

fn text<'a>(size: u32, colour: RGBColor) -> TextStyle<'a> {
    ("sans-serif", size).into_font().color(&colour)
}

#[cfg(test)]
mod tests;
